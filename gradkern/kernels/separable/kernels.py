"""The gradients of maps along each spatial axis: every element of dX adds up the dY that it is a term of.

last_kernel     channels last in memory: a thread has neighbouring channels of one position
lines_kernel    channels first: axis by axis, the last axis in shared memory, so that dY is read side by side
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.separable.config import ROWS, LastConfig, LinesConfig
from gradkern.kernels.separable.positions import items, spatial_kernel
from gradkern.kernels.separable.weights import weights

__all__ = ["last_kernel", "lines_kernel"]


def last_kernel(config: LastConfig) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (SPATIAL_ARGUMENTS) an int64."""
    LANES, ITEM = config.lanes, ITEMSIZE[config.data]
    FLOAT = float64 if config.compute == "float64" else float32
    own = items(config.threads, LANES, True)
    first, last, weight = weights(config.kind, config.compute)
    load = i.loader("global", config.data, LANES)
    store = i.storer("global", config.data, LANES, config.native_bfloat16)

    @device_function
    def gradient(
        dY: int, dX: int, _third: int, numbers: Any, channels: int, _step: int, a: Any, b: Any, c: Any
    ) -> None:
        image, x0, x1, x2, channel = own(numbers, a[0], b[0])
        if image < numbers[5]:
            sums, d = cuda.local.array(LANES, FLOAT), cuda.local.array(LANES, FLOAT)
            for e in range(LANES):
                sums[e] = FLOAT(0)
            at = dY + (image * a[1] * b[1] * c[1] * channels + channel) * ITEM
            step = int32(channels * ITEM)
            first1, last1, first2, last2 = first(x1, b), last(x1, b), first(x2, c), last(x2, c)
            for o0 in range(first(x0, a), last(x0, a) + 1):
                weight0 = weight(x0, int32(o0), a)
                if weight0 != FLOAT(0):
                    for o1 in range(first1, last1 + 1):
                        weight1 = weight0 * weight(x1, int32(o1), b)
                        if weight1 != FLOAT(0):
                            line = int32(int32(o0 * int32(b[1]) + o1) * int32(c[1]))
                            for o2 in range(first2, last2 + 1):
                                w = weight1 * weight(x2, int32(o2), c)
                                if w != FLOAT(0):
                                    load(d, i.row_address(at, int32(line + o2), step))
                                    for e in range(LANES):
                                        sums[e] += w * d[e]
            to = dX + (image * a[0] * b[0] * c[0] * channels + channel) * ITEM
            place = int32(int32(x0 * int32(b[0]) + x1) * int32(c[0]) + x2)
            store(i.row_address(to, place, step), sums)

    return spatial_kernel(gradient)


def lines_kernel(config: LinesConfig) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (LINES_ARGUMENTS) an int64."""
    COLUMNS, WIDTH, ITEM, THREADS = config.columns, config.width, ITEMSIZE[config.data], config.threads
    FLOAT, WIDE = (float64 if config.compute == "float64" else float32), config.itemsize
    HELD = ROWS * COLUMNS
    first, last, weight = weights(config.kind, config.compute)
    load = i.loader("global", config.data, WIDTH)
    store_line = i.storer("shared", config.compute, WIDTH)
    load_line = i.loader("shared", config.compute, 1)
    store = i.storer("global", config.data, COLUMNS, config.native_bfloat16)

    @device_function
    def add_lines(dY: int, row: int, o: int, sizes: Any, sums: Any, d: Any, a: Any, b: Any, c: Any) -> None:
        """What dY has along all axes but the last for a row of dX, at WIDTH places from o on; sizes: reciprocals."""
        plane = i.divided(row, int32(sizes[2]), int32(sizes[3]))
        x1 = int32(row - plane * int32(b[0]))
        image = i.divided(plane, int32(sizes[0]), int32(sizes[1]))
        x0 = int32(plane - image * int32(a[0]))
        at = dY + (int64(image) * a[1] * b[1] * c[1] + o) * ITEM
        first1, last1 = first(x1, b), last(x1, b)
        for e in range(WIDTH):
            sums[e] = FLOAT(0)
        for o0 in range(first(x0, a), last(x0, a) + 1):
            weight0 = weight(x0, int32(o0), a)
            if weight0 != FLOAT(0):
                for o1 in range(first1, last1 + 1):
                    w = weight0 * weight(x1, int32(o1), b)
                    if w != FLOAT(0):
                        load(d, i.row_address(at, int32(o0 * int32(b[1]) + o1), int32(c[1] * ITEM)))
                        for e in range(WIDTH):
                            sums[e] += w * d[e]

    @device_function
    def gradient(
        dY: int, dX: int, rows: int, groups: int, tiles: Any, across: Any, span: int, vectors: Any, sizes: Any,
        a: Any, b: Any, c: Any,
    ) -> None:  # fmt: skip
        """tiles, across, vectors: numbers with their reciprocals: blocks of the same rows, threads side by side in a
        row, and vectors of a line in shared memory, of `span` elements.
        """
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        shared = i.shared_memory()
        tile_row = i.divided(block, int32(tiles[1]), int32(tiles[2]))
        begin = int32(int32(block - tile_row * int32(tiles[0])) * int32(across[0]) * COLUMNS)
        end = int32(min(int32(begin + int32(across[0]) * COLUMNS), int32(c[0])) - 1)
        of_block = int32(int32(groups) * ROWS)
        row0 = int32(tile_row * of_block)
        group = i.divided(thread, int32(across[1]), int32(across[2]))
        x = int32(begin + int32(thread - group * int32(across[0])) * COLUMNS)
        works = group < int32(groups) and x <= end
        sums, d = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        total, one = cuda.local.array(HELD, FLOAT), cuda.local.array(1, FLOAT)
        share, out = cuda.local.array(COLUMNS, FLOAT), cuda.local.array(COLUMNS, FLOAT)
        for e in range(HELD):
            total[e] = FLOAT(0)
        lowest, highest = int32(min(first(begin, c), first(end, c))), int32(max(last(begin, c), last(end, c)))
        own_first, own_last = int32(1), int32(0)
        if works:
            edge = int32(x + COLUMNS - 1)
            own_first = int32(min(first(x, c), first(edge, c)))
            own_last = int32(max(last(x, c), last(edge, c)))
        start = int32(lowest // WIDTH * WIDTH)
        while start <= highest:
            item = thread
            while item < int32(of_block * int32(vectors[0])):
                line = i.divided(item, int32(vectors[1]), int32(vectors[2]))
                o = int32(start + int32(item - line * int32(vectors[0])) * WIDTH)
                row = int32(row0 + line)
                if row < int32(rows) and o <= highest:
                    add_lines(dY, row, o, sizes, sums, d, a, b, c)
                    store_line(shared + int32(int32(line * int32(span) + o - start) * WIDE), sums)
                item = int32(item + THREADS)
            wait_for_block()
            stop = int32(min(int32(start + int32(span) - 1), own_last))
            for o in range(int32(max(start, own_first)), stop + 1):
                for e in range(COLUMNS):
                    share[e] = weight(int32(x + e), int32(o), c)
                for r in range(ROWS):
                    if row0 + group * ROWS + r < rows:
                        line = int32(group * ROWS + r)
                        load_line(one, shared + int32(int32(line * int32(span) + o - start) * WIDE))
                        for e in range(COLUMNS):
                            if share[e] != FLOAT(0):
                                total[r * COLUMNS + e] += share[e] * one[0]
            wait_for_block()
            start = int32(start + int32(span))
        if works:
            for r in range(ROWS):
                row = int32(row0 + group * ROWS + r)
                if row < int32(rows):
                    for e in range(COLUMNS):
                        out[e] = total[r * COLUMNS + e]
                    store(dX + (int64(row) * c[0] + x) * ITEM, out)

    def kernel(
        dY: int, dX: int, _unused: int, rows: int, groups: int, tiles: int, tiles_m: int, tiles_s: int,
        across: int, across_m: int, across_s: int, span: int, vectors: int, vectors_m: int, vectors_s: int,
        size0_m: int, size0_s: int, size1_m: int, size1_s: int,
        a0: int, a1: int, a2: int, a3: int, a4: int, a5: int, a6: int, a7: int, a8: int, a9: int,
        b0: int, b1: int, b2: int, b3: int, b4: int, b5: int, b6: int, b7: int, b8: int, b9: int,
        c0: int, c1: int, c2: int, c3: int, c4: int, c5: int, c6: int, c7: int, c8: int, c9: int,
    ) -> None:  # fmt: skip
        gradient(
            dY, dX, rows, groups, (tiles, tiles_m, tiles_s), (across, across_m, across_s), span,
            (vectors, vectors_m, vectors_s), (size0_m, size0_s, size1_m, size1_s),
            (a0, a1, a2, a3, a4, a5, a6, a7, a8, a9), (b0, b1, b2, b3, b4, b5, b6, b7, b8, b9),
            (c0, c1, c2, c3, c4, c5, c6, c7, c8, c9),
        )  # fmt: skip

    return kernel
