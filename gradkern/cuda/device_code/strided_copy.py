"""The kernel that copies an array from one layout to another, element by element."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics

__all__ = ["build"]


def build(dtype: str) -> Callable[..., None]:
    """The kernel: element i over the axes d goes from its place by the strides s to its place by the strides t."""
    load_one = intrinsics.loader("global", dtype, 1)
    store_one = intrinsics.storer("global", dtype, 1, False)
    WORK = float64 if dtype == "float64" else float32

    def copy(
        source: int, target: int, count: int,
        d0: int, d1: int, d2: int, d3: int, d4: int, d5: int, d6: int, d7: int,
        s0: int, s1: int, s2: int, s3: int, s4: int, s5: int, s6: int, s7: int,
        t0: int, t1: int, t2: int, t3: int, t4: int, t5: int, t6: int, t7: int,
    ) -> None:  # fmt: skip
        value = cuda.local.array(1, WORK)
        step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
        i = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        while i < count:
            i7, rest = i % d7, i // d7
            i6, rest = rest % d6, rest // d6
            i5, rest = rest % d5, rest // d5
            i4, rest = rest % d4, rest // d4
            i3, rest = rest % d3, rest // d3
            i2, rest = rest % d2, rest // d2
            i1, i0 = rest % d1, rest // d1
            load_one(value, source + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4 + i5 * s5 + i6 * s6 + i7 * s7)
            store_one(target + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3 + i4 * t4 + i5 * t5 + i6 * t6 + i7 * t7, value)
            i += step

    return copy
