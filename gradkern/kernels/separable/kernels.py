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
from gradkern.kernels.separable.config import LINES, ROWS, LastConfig, LinesConfig
from gradkern.kernels.separable.weights import weights

__all__ = ["last_kernel", "lines_kernel"]


def last_kernel(config: LastConfig) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (LAST_ARGUMENTS) an int64."""
    LANES, ITEM, THREADS, ROWS_HELD = config.lanes, ITEMSIZE[config.data], config.threads, config.rows
    FLOAT, WIDE = (float64 if config.compute == "float64" else float32), config.itemsize
    TAPS, UNROLL, LOG = config.taps, config.unroll, config.taps.bit_length() - 1
    FLAT, store_range, load_range = config.flat, i.word_storer("shared", 8), i.word_loader("shared", 8)
    ROWS_SHIFT = ROWS_HELD.bit_length() - 1
    SIZE = LANES * ITEM
    PIECE, PIECES, WORDS = min(16, SIZE), max(1, SIZE // 16), max(1, SIZE // 4)
    first, last, weight = weights(config.kind, config.compute)
    load, unpack = i.masked_word_loader("global", PIECE), i.unpacker(config.data, LANES)
    load_weights, store_weight = i.loader("shared", config.compute, UNROLL), i.storer("shared", config.compute, 1)
    store_line, load_line = i.storer("shared", config.compute, LANES), i.loader("shared", config.compute, LANES)
    store = i.storer("global", config.data, LANES, config.native_bfloat16)

    @device_function
    def add_rows(
        at: int, x0: int, range0: Any, from1: int, o2: int, count: int, table: int, step: int, sums: Any, a: Any,
        b: Any, c: Any,
    ) -> None:  # fmt: skip
        """What dY has at o2 along all axes but the last for a row of dX, in its outputs from `from1` on."""
        words, d = cuda.local.array(UNROLL * WORDS, int32), cuda.local.array(LANES, FLOAT)
        shares = cuda.local.array(UNROLL, FLOAT)
        for e in range(LANES):
            sums[e] = FLOAT(0)
        for o0 in range(range0[0], range0[1] + 1):
            weight0 = FLOAT(1)
            if not FLAT:
                weight0 = weight(x0, int32(o0), a)
            if weight0 != FLOAT(0):
                line = int32(o0 * int32(b[1]) + from1)
                k = int32(0)
                while k < count:
                    load_weights(shares, table + int32(k * WIDE))
                    for u in range(UNROLL):
                        address = i.row_address(at, int32(int32(line + k + u) * int32(c[1]) + o2), step)
                        for p in range(PIECES):
                            load(words, int32(u * WORDS + 4 * p), address + 16 * p, shares[u] != FLOAT(0))
                    for u in range(UNROLL):
                        w = weight0 * shares[u]
                        unpack(d, words, int32(u * WORDS))
                        for e in range(LANES):
                            sums[e] += w * d[e]
                    k = int32(k + UNROLL)

    @device_function
    def gradient(
        dY: int, dX: int, channels: int, inner: int, span: int, across: Any, wide: Any, tiles: Any, tiles2: Any,
        tiles1: Any, size0: Any, a: Any, b: Any, c: Any,
    ) -> None:  # fmt: skip
        """across, wide, tiles, tiles2, tiles1, size0: numbers with their reciprocals: a block's vectors of channels and
        its columns; blocks along the channels and the last two axes.
        """
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        lines = i.shared_memory()
        table = lines + LINES
        ranges = table + ROWS_HELD * TAPS * WIDE
        rest = i.divided(block, int32(tiles[1]), int32(tiles[2]))
        vector0 = int32(int32(block - int32(rest * int32(tiles[0]))) * int32(across[0]))
        rest2 = i.divided(rest, int32(tiles2[1]), int32(tiles2[2]))
        column0 = int32(int32(rest - int32(rest2 * int32(tiles2[0]))) * int32(wide[0]))
        rest1 = i.divided(rest2, int32(tiles1[1]), int32(tiles1[2]))
        row0 = int32(int32(rest2 - int32(rest1 * int32(tiles1[0]))) * ROWS_HELD)
        image = i.divided(rest1, int32(size0[1]), int32(size0[2]))
        x0 = int32(rest1 - int32(image * int32(size0[0])))
        own = i.divided(thread, int32(across[1]), int32(across[2]))
        vector = int32(vector0 + int32(thread - int32(own * int32(across[0]))))
        own_row = i.divided(own, int32(wide[1]), int32(wide[2]))
        x1, x2 = int32(row0 + own_row), int32(column0 + int32(own - int32(own_row * int32(wide[0]))))
        works = own_row < ROWS_HELD and x1 < b[0] and x2 < c[0] and vector < inner
        end1 = int32(min(int32(row0 + ROWS_HELD), int32(b[0])) - 1)
        end2 = int32(min(int32(column0 + int32(wide[0])), int32(c[0])) - 1)
        pair = cuda.local.array(2, int32)
        if thread < ROWS_HELD:
            x = int32(min(int32(row0 + thread), end1))
            pair[0], pair[1] = first(x, b), last(x, b)
            store_range(ranges + int32(8 * thread), pair)
        item = thread
        while item < int32(wide[0]):
            x = int32(min(int32(column0 + item), end2))
            pair[0], pair[1] = first(x, c), last(x, c)
            store_range(ranges + int32(8 * (ROWS_HELD + item)), pair)
            item = int32(item + THREADS)
        range0 = int32(0), int32(0)
        if not FLAT:
            range0 = first(x0, a), last(x0, a)
        wait_for_block()
        most = int32(0)
        for r in range(ROWS_HELD):
            load_range(pair, int32(0), ranges + 8 * r)
            most = int32(max(most, int32(pair[1] - pair[0]) + 1))
        # coordinates may go backwards: the first column or the last has the lowest output
        load_range(pair, int32(0), ranges + 8 * ROWS_HELD)
        lowest, highest = pair[0], pair[1]
        load_range(pair, int32(0), ranges + int32(8 * (ROWS_HELD + int32(end2 - column0))))
        lowest, highest = int32(min(lowest, pair[0])), int32(max(highest, pair[1]))
        load_range(pair, int32(0), ranges + int32(8 * (ROWS_HELD + int32(x2 - column0))))
        own_first, own_last = pair[0], pair[1]
        if not works:
            own_last = int32(-1)
        total, sums = cuda.local.array(LANES, FLOAT), cuda.local.array(LANES, FLOAT)
        one = cuda.local.array(1, FLOAT)
        for e in range(LANES):
            total[e] = FLOAT(0)
        step = int32(channels * ITEM)
        at = dY + int64(image) * a[1] * b[1] * c[1] * channels * ITEM
        begin = int32(0)
        while begin < most:
            item = thread
            while item < ROWS_HELD * TAPS:
                x, k = int32(row0 + (item >> LOG)), int32(begin + (item & (TAPS - 1)))
                one[0] = FLOAT(0)
                load_range(pair, int32(0), ranges + int32(8 * (item >> LOG)))
                if x <= end1 and pair[0] + k <= pair[1]:
                    one[0] = weight(x, int32(pair[0] + k), b)
                store_weight(table + int32(item * WIDE), one)
                item = int32(item + THREADS)
            wait_for_block()
            start = lowest
            while start <= highest:
                item = thread
                while item < int32(int32(span * ROWS_HELD) * int32(across[0])):
                    position = i.divided(item, int32(across[1]), int32(across[2]))
                    v = int32(vector0 + int32(item - int32(position * int32(across[0]))))
                    r = int32(position & (ROWS_HELD - 1))
                    x, o2 = int32(row0 + r), int32(start + (position >> ROWS_SHIFT))
                    if o2 <= highest and x <= end1 and v < inner:
                        load_range(pair, int32(0), ranges + int32(8 * r))
                        from1 = int32(pair[0] + begin)
                        count = int32(min(int32(pair[1] - from1 + 1), TAPS))
                        of_vector, shares = at + int64(v) * SIZE, table + int32(r * TAPS * WIDE)
                        add_rows(of_vector, x0, range0, from1, o2, count, shares, step, sums, a, b, c)
                        store_line(lines + int32(item * LANES * WIDE), sums)
                    item = int32(item + THREADS)
                wait_for_block()
                for o in range(int32(max(start, own_first)), int32(min(int32(start + span - 1), own_last)) + 1):
                    w = weight(x2, int32(o), c)
                    if w != FLOAT(0):
                        position = int32(int32(int32(o - start) * ROWS_HELD) + own_row)
                        place = int32(int32(position * int32(across[0])) + int32(vector - vector0))
                        load_line(sums, lines + int32(place * LANES * WIDE))
                        for e in range(LANES):
                            total[e] += w * sums[e]
                wait_for_block()
                start = int32(start + span)
            begin = int32(begin + TAPS)
        if works:
            to = dX + (int64(image) * a[0] * b[0] * c[0] * channels + int64(vector) * LANES) * ITEM
            place = int32(int32(x0 * int32(b[0]) + x1) * int32(c[0]) + x2)
            store(i.row_address(to, place, step), total)

    def kernel(
        dY: int, dX: int, _unused: int, channels: int, inner: int, span: int, across: int, across_m: int, across_s: int,
        wide: int, wide_m: int, wide_s: int, tiles: int, tiles_m: int, tiles_s: int, tiles2: int, tiles2_m: int,
        tiles2_s: int, tiles1: int, tiles1_m: int, tiles1_s: int, size0: int, size0_m: int, size0_s: int,
        a0: int, a1: int, a2: int, a3: int, a4: int, a5: int, a6: int, a7: int, a8: int, a9: int,
        b0: int, b1: int, b2: int, b3: int, b4: int, b5: int, b6: int, b7: int, b8: int, b9: int,
        c0: int, c1: int, c2: int, c3: int, c4: int, c5: int, c6: int, c7: int, c8: int, c9: int,
    ) -> None:  # fmt: skip
        gradient(
            dY, dX, channels, inner, span, (across, across_m, across_s), (wide, wide_m, wide_s),
            (tiles, tiles_m, tiles_s), (tiles2, tiles2_m, tiles2_s), (tiles1, tiles1_m, tiles1_s),
            (size0, size0_m, size0_s), (a0, a1, a2, a3, a4, a5, a6, a7, a8, a9),
            (b0, b1, b2, b3, b4, b5, b6, b7, b8, b9), (c0, c1, c2, c3, c4, c5, c6, c7, c8, c9),
        )  # fmt: skip

    return kernel


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
