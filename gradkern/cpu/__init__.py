"""What the CPU kernels share. Everything here imports Numba, so nothing outside gradkern.ops.*.cpu imports it.

compile    kernels compiled once for each signature and kept on disk
team       one kernel on several threads
storage    element types: 16-bit floats in memory, float32 in arithmetic
staging    the caller's arrays as flat arrays; FlatPlan
functions  exp and the gradients of GELU, as arithmetic that becomes vector code
sums       sums over rows, in blocks
channels   the kernels of both batch norms
"""
