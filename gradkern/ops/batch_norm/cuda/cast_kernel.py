"""A kernel that copies up to three vectors of numbers, one for each channel, into another type.

cuDNN needs scale, statistics and their gradients contiguous, and in float32 for data in float32 or 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics

ARGUMENTS = 13


def build(source: str, target: str, vectors: int) -> Callable[..., None]:
    """The kernel (count, then three times: from, bytes between its elements, to, bytes between its elements).

    Only the first `vectors` of the three are copied. Every argument is an int64.
    """
    load = intrinsics.loader("global", source, 1)
    store = intrinsics.storer("global", target, 1, False)
    WORK = float64 if source == "float64" else float32
    VECTORS = vectors

    def kernel(
        count: int,
        a: int,
        a_step: int,
        to_a: int,
        to_a_step: int,
        b: int,
        b_step: int,
        to_b: int,
        to_b_step: int,
        c: int,
        c_step: int,
        to_c: int,
        to_c_step: int,
    ) -> None:
        value = cuda.local.array(1, WORK)
        step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
        i = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        while i < count:
            load(value, a + i * a_step)
            store(to_a + i * to_a_step, value)
            if VECTORS > 1:
                load(value, b + i * b_step)
                store(to_b + i * to_b_step, value)
            if VECTORS > 2:
                load(value, c + i * c_step)
                store(to_c + i * to_c_step, value)
            i += step

    return kernel
