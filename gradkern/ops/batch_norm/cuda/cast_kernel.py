"""A kernel that copies up to three vectors of numbers, one for each channel, into another type.

cuDNN needs scale, statistics and their gradients contiguous, and in float32 for data in float32 or 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics
from gradkern.cuda.device_code.function import device_function

ARGUMENTS = 13


def build(source: str, target: str, vectors: int) -> Callable[..., None]:
    """The kernel (count, then three times: from, bytes between its elements, to, bytes between its elements).

    Only the first `vectors` of the three are copied. Every argument is an int64.
    """
    load = intrinsics.loader("global", source, 1)
    store = intrinsics.storer("global", target, 1, False)
    WORK = float64 if source == "float64" else float32
    VECTORS = vectors

    @device_function
    def copy(value: Any, n: int, address: int, step: int, to: int, to_step: int) -> None:
        load(value, address + n * step)
        store(to + n * to_step, value)

    def kernel(count: int, *of: int) -> None:
        value = cuda.local.array(1, WORK)
        step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
        n = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        while n < count:
            copy(value, n, of[0], of[1], of[2], of[3])
            if VECTORS > 1:
                copy(value, n, of[4], of[5], of[6], of[7])
            if VECTORS > 2:
                copy(value, n, of[8], of[9], of[10], of[11])
            n += step

    return kernel
