"""What the CPU kernels share. All but cache import Numba, so nothing outside gradkern.ops.*.cpu imports it.

cache          compiled kernels on disk
compile        kernels compiled once for each signature
jobs           what takes a kernel to several threads
threads        one kernel on several threads
llvm           the names of libraries without types
element_types  16-bit floats in memory, float32 in arithmetic
flat_plan      the caller's arrays as flat arrays; FlatPlan
gelu           exp and the gradients of GELU, as arithmetic that becomes vector code
sums           sums over rows, in blocks
runs           where the channels of a batch norm lie
batch_norm     the kernels of both batch norms
"""
