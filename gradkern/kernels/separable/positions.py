"""Kernels of arrays of N, C and three spatial axes, and the elements of a thread."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ByElementType
from gradkern.cuda.device_code.function import device_function


def spatial_kernel(body: Callable[..., None]) -> Callable[..., None]:
    """The kernel of SPATIAL_ARGUMENTS, as a function that Numba compiles with each an int64, with the device function
    body(first, second, third, ITEMS, channels, plane_step, a, b, c); a, b, c: the numbers of each axis.
    """

    def kernel(first: int, second: int, third: int, *numbers: int) -> None:
        body(
            first, second, third, numbers[0:17], numbers[17], numbers[18], numbers[19:29], numbers[29:39],
            numbers[39:49],
        )  # fmt: skip

    return kernel


def items(threads: int, lanes: int, last: bool, patch: tuple[int, int, int]) -> Callable[..., Any]:
    """A device function own(ITEMS, size0) -> image, and the first of a thread's positions along x0, x1 and x2 and of
    its channels; image is not below `images` where a thread has none.

    lanes, last: of the Layout; patch: as in Layout.numbers.
    """
    THREADS, LANES, LAST, PLANES, ROWS, COLUMNS = threads, lanes, last, *patch

    @device_function
    def own(n: Any, size0: int) -> Any:
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
            plane = i.divided(row, int32(n[15]), int32(n[16]))
            x1 = int32((row - plane * int32(n[14])) * ROWS)
            x2 = int32(x2 * COLUMNS)
            own_image = i.divided(plane, int32(n[12]), int32(n[13]))
            x0 = int32(int32(plane - own_image * int32(int32(int32(size0) + (PLANES - 1)) // PLANES)) * PLANES)
            image = int64(number) * n[4] + own_image
        return image, x0, x1, x2, c

    return own


def side_loader(config: ByElementType, count: int, absent: float = 0.0, piece: int = 16) -> Callable[..., None]:
    """load(d, n, address, present): `count` elements side by side into d[n:], all of them `absent` where not present.
    The address is a multiple of `piece`, the most bytes of one load.
    """
    SIZE = count * config.data_itemsize
    PIECE = gcd(piece, SIZE)
    PIECES, OF_PIECE, WORDS = SIZE // PIECE, PIECE // config.data_itemsize, max(1, PIECE // 4)
    FLOAT = float64 if config.compute == "float64" else float32
    ABSENT, FILLED = absent, absent != 0
    load_piece, unpack = i.masked_word_loader("global", PIECE), i.unpacker(config.data, OF_PIECE)

    @device_function
    def load(d: Any, n: int, address: int, present: bool) -> None:
        words, values = cuda.local.array(WORDS, int32), cuda.local.array(OF_PIECE, FLOAT)
        for p in range(PIECES):
            load_piece(words, int32(0), address + p * PIECE, present)
            unpack(values, words, int32(0))
            for e in range(OF_PIECE):
                if FILLED:
                    values[e] = values[e] if present else FLOAT(ABSENT)
                d[n + p * OF_PIECE + e] = values[e]

    return load
