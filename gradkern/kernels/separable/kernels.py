"""The gradients of maps along each spatial axis: every element of dX adds up the dY that it is a term of.

A block has some rows of dX, or a part of them. It adds up dY along all axes but the last, in shared memory, where dY is
read side by side; then along the last. The weights of both steps are computed once for all of the block.
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
from gradkern.kernels.separable.config import SeparableConfig
from gradkern.kernels.separable.weights import weights


def build(config: SeparableConfig) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (ARGUMENTS) an int64."""
    LAST, THREADS, WHOLE = config.last, config.threads, config.whole
    WIDTH, LANES = config.width, (config.width if config.last else 1)
    POSITIONS = 1 if LAST else WIDTH  # of an item of the first step
    ITEM, WIDE = ITEMSIZE[config.data], config.itemsize
    FLOAT = float64 if config.compute == "float64" else float32
    TAPS1, TAPS2, LOG1 = config.taps1, config.taps2, config.taps1.bit_length() - 1
    AT_ROWS, AT_COLUMNS, AT_SHARES1, AT_SHARES2 = config.places
    first, last, weight = weights(config.kind, config.compute)
    store_row, load_row = i.word_storer("shared", 16), i.word_loader("shared", 16)
    store_column, load_column = i.word_storer("shared", 8), i.word_loader("shared", 8)
    store_share = i.storer("shared", config.compute, 1)
    store_line = i.storer("shared", config.compute, WIDTH)
    store = i.storer("global", config.data, LANES, config.native_bfloat16)
    add_rows, add_columns = _rows(config), _columns(config)

    @device_function
    def gradient(
        dY: int, dX: int, channels: int, inner: int, rows: int, of_block: int, across: Any, wide: Any, span: Any,
        tiles: Any, tiles2: Any, size1: Any, size0: Any, a: Any, b: Any, c: Any,
    ) -> None:  # fmt: skip
        """across, wide, span, ...: numbers with their reciprocals: vectors of channels and columns of a block, outputs
        of a line in shared memory by WIDTH; blocks along the channels and the last axis.
        """
        thread, block, lines = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x), i.shared_memory()
        rest = i.divided(block, int32(tiles[1]), int32(tiles[2]))
        vector0 = int32(int32(block - int32(rest * int32(tiles[0]))) * int32(across[0]))
        tile_row = i.divided(rest, int32(tiles2[1]), int32(tiles2[2]))
        column0 = int32(int32(rest - int32(tile_row * int32(tiles2[0]))) * int32(wide[0]))
        row0 = int32(tile_row * int32(of_block))
        count1 = int32(min(int32(of_block), int32(int32(rows) - row0)))
        count2 = int32(min(int32(wide[0]), int32(int32(c[0]) - column0)))
        row, pair = cuda.local.array(4, int32), cuda.local.array(2, int32)
        total, sums = cuda.local.array(LANES, FLOAT), cuda.local.array(WIDTH, FLOAT)
        one = cuda.local.array(1, FLOAT)
        results = int32(int32(count1 * int32(wide[0])) * int32(across[0]))
        item = thread
        while item < count1:
            row[3] = i.divided(int32(row0 + item), int32(size1[1]), int32(size1[2]))
            row[2] = int32(int32(row0 + item) - int32(row[3] * int32(size1[0])))
            row[0], row[1] = first(row[2], b), last(row[2], b)
            store_row(lines + int32(AT_ROWS + item * 16), row)
            item = int32(item + THREADS)
        item = thread
        while item < count2:
            pair[0], pair[1] = first(int32(column0 + item), c), last(int32(column0 + item), c)
            store_column(lines + int32(AT_COLUMNS + item * 8), pair)
            item = int32(item + THREADS)
        wait_for_block()
        item = thread
        while item < int32(count1 * TAPS1):
            load_row(row, int32(0), lines + int32(AT_ROWS + (item >> LOG1) * 16))
            o = int32(row[0] + (item & (TAPS1 - 1)))
            one[0] = FLOAT(0)
            if o <= row[1]:
                one[0] = weight(row[2], o, b)
            store_share(lines + int32(AT_SHARES1 + item * WIDE), one)
            item = int32(item + THREADS)
        item = thread
        while item < int32(int32(wide[0]) * TAPS2):
            k = i.divided(item, int32(wide[1]), int32(wide[2]))
            column = int32(item - int32(k * int32(wide[0])))
            if column < count2:
                load_column(pair, int32(0), lines + int32(AT_COLUMNS + column * 8))
                if pair[0] + k <= pair[1]:
                    one[0] = weight(int32(column0 + column), int32(pair[0] + k), c)
                    store_share(lines + int32(AT_SHARES2 + item * WIDE), one)
            item = int32(item + THREADS)
        # coordinates may go backwards: the first column or the last has the lowest output
        load_column(pair, int32(0), lines + AT_COLUMNS)
        lowest, highest = pair[0], pair[1]
        load_column(pair, int32(0), lines + int32(AT_COLUMNS + int32(count2 - 1) * 8))
        lowest, highest = int32(int32(min(lowest, pair[0])) & -POSITIONS), int32(max(highest, pair[1]))
        start = lowest
        wait_for_block()
        while start <= highest or start == lowest:  # where there is no output there are zeros
            item = thread
            while item < int32(int32(count1 * int32(span[0])) * int32(across[0])):
                position = i.divided(item, int32(across[1]), int32(across[2]))
                vector = int32(vector0 + int32(item - int32(position * int32(across[0]))))
                number = i.divided(position, int32(span[1]), int32(span[2]))
                o = int32(start + int32(int32(position - int32(number * int32(span[0]))) * POSITIONS))
                if o <= highest and vector < inner:
                    load_row(row, int32(0), lines + int32(AT_ROWS + number * 16))
                    shares = lines + int32(AT_SHARES1 + number * TAPS1 * WIDE)
                    at = dY + int64(vector) * (WIDTH * ITEM)
                    add_rows(at, channels, row, o, shares, sums, size0, a, b, c)
                    store_line(lines + int32(item * WIDTH * WIDE), sums)
                item = int32(item + THREADS)
            wait_for_block()
            item = thread
            while item < results:
                if start == lowest or WHOLE:
                    for e in range(LANES):
                        total[e] = FLOAT(0)
                add_columns(lines, item, start, column0, total, across, wide, span, c)
                if start + int32(span[0]) * POSITIONS > highest or WHOLE:
                    own = i.divided(item, int32(across[1]), int32(across[2]))
                    vector = int32(vector0 + int32(item - int32(own * int32(across[0]))))
                    number = i.divided(own, int32(wide[1]), int32(wide[2]))
                    column = int32(column0 + int32(own - int32(number * int32(wide[0]))))
                    if column < c[0] and vector < inner:
                        of_row = dX + int64(row0 + number) * c[0] * channels * ITEM + int64(vector) * (LANES * ITEM)
                        store(i.row_address(of_row, column, int32(channels * ITEM)), total)
                item = int32(item + THREADS)
            wait_for_block()
            start = int32(start + int32(int32(span[0]) * POSITIONS))

    def kernel(
        dY: int, dX: int, _unused: int, channels: int, inner: int, rows: int, of_block: int, *numbers: int
    ) -> None:
        gradient(
            dY, dX, channels, inner, rows, of_block, numbers[0:3], numbers[3:6], numbers[6:9], numbers[9:12],
            numbers[12:15], numbers[15:18], numbers[18:21], numbers[21:31], numbers[31:41], numbers[41:51],
        )  # fmt: skip

    return kernel


def _rows(config: SeparableConfig) -> Callable[..., None]:
    """A device function add_rows(at, channels, row, o, shares, sums, size0, a, b, c): what dY has along all axes but
    the last for a row of dX, at `width` places from o on. at: of a vector of channels of the first image; row: the
    first and last output of its place along the last axis but one, that place, and the plane; shares: weights.
    """
    WIDTH, FLAT, LAST, ITEM, WIDE = config.width, config.flat, config.last, ITEMSIZE[config.data], config.itemsize
    FLOAT, SIZE = (float64 if config.compute == "float64" else float32), WIDTH * ITEM
    TAPS, UNROLL = config.taps1, config.in_flight
    PIECE, PIECES, WORDS = min(16, SIZE), max(1, SIZE // 16), max(1, SIZE // 4)
    first, last, weight = weights(config.kind, config.compute)
    load, unpack = i.masked_word_loader("global", PIECE), i.unpacker(config.data, WIDTH)
    load_shares = i.loader("shared", config.compute, UNROLL)

    @device_function
    def add_rows(
        at: int, channels: int, row: Any, o: int, shares_at: int, sums: Any, size0: Any, a: Any, b: Any, c: Any
    ) -> None:
        words, d = cuda.local.array(UNROLL * WORDS, int32), cuda.local.array(WIDTH, FLOAT)
        shares = cuda.local.array(UNROLL, FLOAT)
        for e in range(WIDTH):
            sums[e] = FLOAT(0)
        image, x0, first0, last0 = row[3], int32(0), int32(0), int32(0)
        if not FLAT:
            image = i.divided(row[3], int32(size0[1]), int32(size0[2]))
            x0 = int32(row[3] - int32(image * int32(size0[0])))
            first0, last0 = first(x0, a), last(x0, a)
        of_image = at + int64(image) * a[1] * b[1] * c[1] * channels * ITEM
        step = int32(channels * ITEM) if LAST else int32(ITEM)
        of_line = c[1] * step
        count = int32(row[1] - row[0] + 1)
        for o0 in range(first0, last0 + 1):
            weight0 = FLOAT(1)
            if not FLAT:
                weight0 = weight(x0, int32(o0), a)
            if weight0 != FLOAT(0):
                line = int32(o0 * int32(b[1]) + row[0])
                k = int32(0)
                while k < count:
                    if k < TAPS:
                        load_shares(shares, shares_at + int32(k * WIDE))
                    else:
                        for u in range(UNROLL):
                            shares[u] = FLOAT(0)
                            if k + u < count:
                                shares[u] = weight(row[2], int32(row[0] + k + u), b)
                    address = i.row_address(of_image, int32(int32(line + k) * int32(c[1]) + o), step)
                    for u in range(UNROLL):
                        for p in range(PIECES):
                            load(words, int32(u * WORDS + 4 * p), address + 16 * p, shares[u] != FLOAT(0))
                        address += of_line
                    for u in range(UNROLL):
                        w = weight0 * shares[u]
                        unpack(d, words, int32(u * WORDS))
                        for e in range(WIDTH):
                            sums[e] += w * d[e]
                    k = int32(k + UNROLL)

    return add_rows


def _columns(config: SeparableConfig) -> Callable[..., None]:
    """A device function that adds to a result what the lines in shared memory have, of outputs from `start` on."""
    LAST, LANES, WIDE, TAPS = config.last, (config.width if config.last else 1), config.itemsize, config.taps2
    POSITIONS, FLOAT = (1 if LAST else config.width), (float64 if config.compute == "float64" else float32)
    _, AT_COLUMNS, _, AT_SHARES = config.places
    _, _, weight = weights(config.kind, config.compute)
    load_column, load_share = i.word_loader("shared", 8), i.loader("shared", config.compute, 1)
    load_line = i.loader("shared", config.compute, LANES)

    @device_function
    def add_columns(
        lines: int, item: int, start: int, column0: int, total: Any, across: Any, wide: Any, span: Any, c: Any
    ) -> None:
        pair, share, held = cuda.local.array(2, int32), cuda.local.array(1, FLOAT), cuda.local.array(LANES, FLOAT)
        own = i.divided(item, int32(across[1]), int32(across[2]))
        vector = int32(item - int32(own * int32(across[0])))
        number = i.divided(own, int32(wide[1]), int32(wide[2]))
        column = int32(own - int32(number * int32(wide[0])))
        if column0 + column < c[0]:
            load_column(pair, int32(0), lines + int32(AT_COLUMNS + column * 8))
            line = int32(int32(int32(number * int32(span[0])) * POSITIONS) - start)
            stop = int32(start + int32(int32(span[0]) * POSITIONS) - 1)
            for o in range(int32(max(start, pair[0])), int32(min(stop, pair[1])) + 1):
                k = int32(int32(o) - pair[0])
                if k < TAPS:
                    load_share(share, lines + int32(AT_SHARES + int32(int32(k * int32(wide[0])) + column) * WIDE))
                else:
                    share[0] = weight(int32(column0 + column), int32(o), c)
                if share[0] != FLOAT(0):
                    place = int32(int32(int32(line + o) * int32(across[0])) + vector)
                    load_line(held, lines + int32(place * (LANES * WIDE)))
                    for e in range(LANES):
                        total[e] += share[0] * held[e]

    return add_columns
