"""Code shared by the CPU kernels. All but cache import Numba, so only gradkern.ops.*.cpu imports it.

cache          compiled kernels on disk
compile        kernels compiled once for each signature; what writes LLVM itself
jobs           the queue and the mailboxes of a kernel on several threads
threads        one kernel on several threads
element_types  16-bit floats in memory, float32 in arithmetic
flat_plan      the caller's arrays as flat arrays; FlatPlan
gelu           exp and the gradients of GELU, in arithmetic that LLVM vectorises
sums           sums over rows, in blocks
runs           the layout of a batch norm's channels
batch_norm     the kernels of both batch norms
"""
