"""Which elements of an array of N, C and three spatial axes a thread has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function

__all__ = ["items"]


def items(threads: int, lanes: int, last: bool) -> Callable[..., Any]:
    """A device function own(ITEMS, size0, size1) -> image, x0, x1, the first of the lanes along x2, the first of the
    channels; image is not below `images` where a thread has none.
    """
    THREADS, LANES, LAST = threads, lanes, last

    @device_function
    def own(n: Any, size0: int, size1: int) -> Any:
        block = int32(cuda.blockIdx.x)
        number = i.divided(block, int32(n[1]), int32(n[2]))
        item = int32((block - number * int32(n[0])) * THREADS + int32(cuda.threadIdx.x))
        image = int64(n[5])
        x0, x1, x2, c = int32(0), int32(0), int32(0), int32(0)
        if item < int32(n[3]):
            rest = item
            if LAST:
                rest = i.divided(item, int32(n[7]), int32(n[8]))
                c = int32((item - rest * int32(n[6])) * LANES)
            row = i.divided(rest, int32(n[10]), int32(n[11]))
            x2 = int32(rest - row * int32(n[9]))
            if not LAST:
                x2 = int32(x2 * LANES)
            plane = i.divided(row, int32(n[14]), int32(n[15]))
            x1 = int32(row - plane * int32(size1))
            own_image = i.divided(plane, int32(n[12]), int32(n[13]))
            x0 = int32(plane - own_image * int32(size0))
            image = int64(number) * n[4] + own_image
        return image, x0, x1, x2, c

    return own
