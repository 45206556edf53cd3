"""The kernels that add up rows with equal keys, given the keys in order and the position of each.

The sorted list is cut into pieces of one length, whatever the keys: threads have equal work even if all keys are
equal. A sum within a piece is written to its row at once, rounded once. A part of one that goes on into the next piece,
or comes from the one before, is kept unrounded, and a second kernel adds up such parts in their order.

Rows without a key are zero already, or are set to zero by other blocks of the first launch, each with a tile of rows;
none, where sums are added to the rows that are there.
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
from gradkern.cuda.device_code.numbers import integer_access
from gradkern.kernels.segments.config import SumsConfig, SumsTypes


def _store_row(config: SumsConfig, types: SumsTypes) -> Callable[[int, Any], None]:
    """A device function store(address, sums): of a vector of a row."""
    WIDTH, ACCUMULATE = config.width, types.accumulate
    FLOAT = float64 if types.compute == "float64" else float32
    load = i.loader("global", types.data, WIDTH)
    store_vector = i.storer("global", types.data, WIDTH, types.native_bfloat16)

    @device_function
    def store(address: int, sums: Any) -> None:
        if ACCUMULATE:
            there = cuda.local.array(WIDTH, FLOAT)
            load(there, address)
            for e in range(WIDTH):
                there[e] += sums[e]
            store_vector(address, there)
        else:
            store_vector(address, sums)

    return store


def build_sums(config: SumsConfig, types: SumsTypes) -> Callable[..., None]:
    """The kernel of sums and zeros, of int64 arguments SUMS_ARGUMENTS.

    source, target    rows of `columns` elements: `count` for each of `rows`; all keys are for these
    heads, tails      for each piece, parts of the sums that come from the piece before, and that go on into the next
    items             pieces for each block of columns of each array of rows, as many as `groups` to a block
    all_rows, tile    of the target; of a block behind `item_blocks`, one that writes zeros
    """
    WIDTH, LANES, GROUPS, UNROLL, OVERLAP = config.width, config.lanes, config.groups, config.unroll, config.overlap
    SHIFT = LANES.bit_length() - 1
    FLOAT = float64 if types.compute == "float64" else float32
    ITEM, PART = ITEMSIZE[types.data], ITEMSIZE[types.compute]
    BYTES = WIDTH * ITEM
    WORDS = max(1, BYTES // 4)
    (load_key, _), (load_position, _) = integer_access(types.long), integer_access(False)
    load, unpack = i.word_loader("global", BYTES), i.unpacker(types.data, WIDTH)
    store, store_part = _store_row(config, types), i.storer("global", types.compute, WIDTH)
    store_zeros = i.word_storer("global", BYTES)

    def kernel(
        keys: int, positions: int, source: int, target: int, heads: int, tails: int, count: int, piece: int,
        pieces: int, rows: int, columns: int, column_blocks: int, items: int, item_blocks: int, all_rows: int,
        tile: int,
    ) -> None:  # fmt: skip
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        if OVERLAP:
            i.begin_next_launch()
            i.wait_for_launch_before()
        group, lane = thread >> SHIFT, thread & (LANES - 1)
        if block < int32(item_blocks):
            item = int32(block * GROUPS + group)
            rest = i.quotient(item, int32(column_blocks))
            column = int64((item - rest * int32(column_blocks)) * LANES + lane) * WIDTH
            batch = i.quotient(rest, int32(pieces))
            number = int32(rest - batch * int32(pieces))
            if item < items and column < columns:
                begin = int32(number * int32(piece))
                end = min(int32(begin + int32(piece)), int32(count))
                before, after = int64(-1), int64(-1)
                if begin > 0:
                    before = load_key(keys, begin - 1)
                if end < count:
                    after = load_key(keys, end)
                current = load_key(keys, begin)
                from_before = current == before
                source += (int64(batch) * count * columns + column) * ITEM
                target += (int64(batch) * rows * columns + column) * ITEM
                part = (int64(rest) * columns + column) * PART
                words = cuda.local.array(UNROLL * WORDS, int32)
                found, places = cuda.local.array(UNROLL, int64), cuda.local.array(UNROLL, int64)
                sums, x = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
                for e in range(WIDTH):
                    sums[e] = FLOAT(0)
                while begin < end:
                    for u in range(UNROLL):  # rows behind the last repeat the last
                        n = min(int32(begin + u), int32(end - 1))
                        found[u] = load_key(keys, n)
                        places[u] = load_position(positions, n)
                    for u in range(UNROLL):
                        load(words, u * WORDS, source + places[u] * columns * ITEM)
                    for u in range(UNROLL):
                        if begin + u < end:
                            if found[u] != current:
                                if from_before:
                                    store_part(heads + part, sums)
                                else:
                                    store(target + current * columns * ITEM, sums)
                                current, from_before = found[u], False
                                for e in range(WIDTH):
                                    sums[e] = FLOAT(0)
                            unpack(x, words, u * WORDS)
                            for e in range(WIDTH):
                                sums[e] += x[e]
                    begin = int32(begin + UNROLL)
                if current < rows:  # those without a row come last
                    if from_before:
                        store_part(heads + part, sums)
                    elif current == after:
                        store_part(tails + part, sums)
                    else:
                        store(target + current * columns * ITEM, sums)
        else:
            first = int64(block - int32(item_blocks)) * tile
            if thread < tile:
                row = (first + thread) % rows
                low, high = int32(0), int32(count)  # the first place whose key is not less
                while low < high:
                    middle = (low + high) >> 1
                    if load_key(keys, middle) < row:
                        low = int32(middle + 1)
                    else:
                        high = middle
                has_sum = int32(0)
                if low < count and load_key(keys, low) == row:
                    has_sum = int32(1)
                i.store_word(i.shared_memory() + thread * 4, has_sum)
            wait_for_block()
            zeros = cuda.local.array(WORDS, int32)
            for w in range(WORDS):
                zeros[w] = int32(0)
            n = group
            while n < tile and first + n < all_rows:
                if i.load_word(i.shared_memory() + n * 4) == 0:
                    column = int64(lane * WIDTH)
                    while column < columns:
                        store_zeros(target + ((first + n) * columns + column) * ITEM, zeros)
                        column += LANES * WIDTH
                n = int32(n + GROUPS)

    return kernel


def build_parts(config: SumsConfig, types: SumsTypes) -> Callable[..., None]:
    """The kernel that adds up the parts of sums over several pieces, of the same arguments. A block has the sum that
    begins in its item's piece and goes on: its groups take parts in turn, and the first adds up what they have.
    """
    WIDTH, LANES, GROUPS, UNROLL, OVERLAP = config.width, config.lanes, config.groups, config.unroll, config.overlap
    SHIFT = LANES.bit_length() - 1
    FLOAT = float64 if types.compute == "float64" else float32
    ITEM, PART = ITEMSIZE[types.data], ITEMSIZE[types.compute]
    load_key, _ = integer_access(types.long)
    load, store = i.loader("global", types.compute, WIDTH), _store_row(config, types)
    load_shared, store_shared = i.loader("shared", types.compute, WIDTH), i.storer("shared", types.compute, WIDTH)

    def kernel(
        keys: int, positions: int, source: int, target: int, heads: int, tails: int, count: int, piece: int,
        pieces: int, rows: int, columns: int, column_blocks: int, items: int, item_blocks: int, all_rows: int,
        tile: int,
    ) -> None:  # fmt: skip
        thread, item = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        if OVERLAP:
            i.begin_next_launch()
            i.wait_for_launch_before()
        group, lane = thread >> SHIFT, thread & (LANES - 1)
        rest = i.quotient(item, int32(column_blocks))
        column = int64((item - rest * int32(column_blocks)) * LANES + lane) * WIDTH
        batch = i.quotient(rest, int32(pieces))
        number = int32(rest - batch * int32(pieces))
        begin = int32(number * int32(piece))
        end = int32(begin + int32(piece))
        # three loads at once, of keys that are there, whichever of them count
        current, after = load_key(keys, min(end, int32(count)) - 1), load_key(keys, min(end, int32(count) - 1))
        before = load_key(keys, max(begin - 1, int32(0)))
        begins_here = end < count and current < rows and after == current and (begin == 0 or before != current)
        if begins_here:  # or not, for the whole block
            sums, one = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
            for e in range(WIDTH):
                sums[e] = FLOAT(0)
            if column < columns:
                x, found = cuda.local.array(UNROLL * WIDTH, FLOAT), cuda.local.array(UNROLL, int64)
                goes_on, first = True, int32(number + 1 + group)
                while goes_on:
                    for u in range(UNROLL):  # pieces behind the last repeat the last
                        n = min(int32(first + u * GROUPS), int32(int32(pieces) - 1))
                        found[u] = load_key(keys, n * int32(piece))
                        load(one, heads + (int64(batch * int32(pieces) + n) * columns + column) * PART)
                        for e in range(WIDTH):
                            x[u * WIDTH + e] = one[e]
                    for u in range(UNROLL):
                        goes_on = goes_on and first + u * GROUPS < pieces and found[u] == current
                        if goes_on:
                            for e in range(WIDTH):
                                sums[e] += x[u * WIDTH + e]
                    first = int32(first + UNROLL * GROUPS)
            if GROUPS > 1:
                store_shared(i.shared_memory() + int32(thread * (WIDTH * PART)), sums)
                wait_for_block()
            if group == 0 and column < columns:
                if GROUPS > 1:
                    for each in range(1, GROUPS):
                        load_shared(one, i.shared_memory() + int32((each * LANES + lane) * (WIDTH * PART)))
                        for e in range(WIDTH):
                            sums[e] += one[e]
                load(one, tails + (int64(rest) * columns + column) * PART)
                for e in range(WIDTH):
                    sums[e] += one[e]
                store(target + ((int64(batch) * rows + current) * columns + column) * ITEM, sums)

    return kernel
