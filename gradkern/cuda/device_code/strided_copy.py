"""The kernel that copies an array from one layout to another: one block for each tile of rows and columns.

Elements are copied as bits: a kernel depends on their size, not on their type. Accesses are as wide as the addresses
allow. A thread issues several loads, 64 bytes if possible, before it uses the first.

Columns have the smallest stride in the target. If rows have it in the source, a tile passes through shared memory: read
along rows, written along columns. Elements of 2 bytes are paired on the way, two columns in a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function

_WORDS, _ACCESSES = 16, 8  # of a thread, in flight at a time; each access needs registers for its address, too


def build(size: int, turned: bool, read: int, written: int, long: bool) -> Callable[..., None]:
    """The kernel for elements of `size` bytes.

    turned: rows have the smallest stride in the source. read, written: elements of an access, equal if not turned.
    long: an axis, or its stride, needs more than 31 bits.

    Arguments after the addresses: rows and columns, those of a tile, their strides in source and target in bytes, and
    in shared memory those of a tile's rows and of groups of `read` rows. Then numbers to divide by, each with its
    `columns.reciprocal`: reads along a tile's rows, writes along its columns, tiles along the columns and along the
    rows, and the sizes of the other axes, the fastest last; their strides in the source are s, in the target t.
    """
    SIZE, TURNED, READ, WRITTEN = size, turned, read, written
    PAIR = max(1, 4 // size)  # columns that are stored to shared memory together, as a word
    IN, OUT, CELL = size * read, size * written, size * PAIR
    IN_WORDS, OUT_WORDS, CELL_WORDS = max(1, IN // 4), max(1, OUT // 4), CELL // 4
    LOADS, STORES = min(_ACCESSES, _WORDS // (PAIR * IN_WORDS)), min(_ACCESSES, _WORDS // OUT_WORDS)
    SHIFT, REST = read.bit_length() - 1, read - 1
    STEP = int64 if long else int32
    at = i.row_address_long if long else i.row_address

    load, put = i.word_loader("global", IN), i.word_storer("shared", CELL)
    take, store = i.word_loader("shared" if turned else "global", OUT), i.word_storer("global", OUT)

    @device_function
    def put_rows(words: Any, first: int, to: int, pitch: int) -> None:
        """Stores the elements of READ rows of one column, or of PAIR columns, from words[first:] to shared memory."""
        cell = cuda.local.array(CELL_WORDS, int32)
        for row in range(READ):
            if PAIR == 2:
                one, other = words[first + row // 2], words[first + IN_WORDS + row // 2]
                cell[0] = i.high_halves(one, other) if row % 2 == 1 else i.low_halves(one, other)
            elif PAIR == 4:
                cell[0] = 0
                for column in range(4):
                    byte = words[first + column * IN_WORDS + row // 4] >> int32(8 * (row % 4)) & int32(255)
                    cell[0] |= byte << int32(8 * column)
            else:
                for word in range(CELL_WORDS):
                    cell[word] = words[first + row * CELL_WORDS + word]
            put(to + row * pitch, cell)

    def copy(
        source: int, target: int, rows: int, columns: int, tile_rows: int, tile_columns: int,
        source_row: int, source_column: int, target_row: int, target_column: int, pitch: int, group: int,
        reads: int, reads_multiplier: int, reads_shift: int, writes: int, writes_multiplier: int, writes_shift: int,
        across: int, across_multiplier: int, across_shift: int, down: int, down_multiplier: int, down_shift: int,
        d0: int, m0: int, h0: int, d1: int, m1: int, h1: int, d2: int, m2: int, h2: int,
        d3: int, m3: int, h3: int, d4: int, m4: int, h4: int, d5: int, m5: int, h5: int,
        s0: int, s1: int, s2: int, s3: int, s4: int, s5: int, t0: int, t1: int, t2: int, t3: int, t4: int, t5: int,
    ) -> None:  # fmt: skip
        thread, threads = int32(cuda.threadIdx.x), int32(cuda.blockDim.x)
        source_row, source_column, target_row, target_column = (
            STEP(source_row), STEP(source_column), STEP(target_row), STEP(target_column)
        )  # fmt: skip
        # the place of the tile
        tile = int32(cuda.blockIdx.x)
        rest = i.divided(tile, int32(across_multiplier), int32(across_shift))
        first_column = STEP(STEP(tile - rest * int32(across)) * STEP(tile_columns))
        tile = i.divided(rest, int32(down_multiplier), int32(down_shift))
        first_row = STEP(STEP(rest - tile * int32(down)) * STEP(tile_rows))
        rest = i.divided(tile, int32(m5), int32(h5))
        i5 = STEP(tile - rest * int32(d5))
        tile = i.divided(rest, int32(m4), int32(h4))
        i4 = STEP(rest - tile * int32(d4))
        rest = i.divided(tile, int32(m3), int32(h3))
        i3 = STEP(tile - rest * int32(d3))
        tile = i.divided(rest, int32(m2), int32(h2))
        i2 = STEP(rest - tile * int32(d2))
        rest = i.divided(tile, int32(m1), int32(h1))
        i1, i0 = STEP(tile - rest * int32(d1)), STEP(rest)
        high = int32(min(STEP(tile_rows), STEP(rows - first_row)))
        wide = int32(min(STEP(tile_columns), STEP(columns - first_column)))
        there = at(at(source, first_row, source_row), first_column, source_column)
        there = at(at(at(there, i0, STEP(s0)), i1, STEP(s1)), i2, STEP(s2))
        there = at(at(at(there, i3, STEP(s3)), i4, STEP(s4)), i5, STEP(s5))
        here = at(at(target, first_row, target_row), first_column, target_column)
        here = at(at(at(here, i0, STEP(t0)), i1, STEP(t1)), i2, STEP(t2))
        here = at(at(at(here, i3, STEP(t3)), i4, STEP(t4)), i5, STEP(t5))

        words, some = cuda.local.array(16, int32), cuda.local.array(OUT_WORDS, int32)
        places = cuda.local.array(LOADS, int32)
        shared, pitch, group = i.shared_memory(), int32(pitch), int32(group)
        if TURNED:
            reads, reads_multiplier, reads_shift = int32(reads), int32(reads_multiplier), int32(reads_shift)
            pairs = int32((wide + (PAIR - 1)) // PAIR)
            number, all_reads = thread, int32(reads * pairs)
            while number < all_reads:
                for n in range(LOADS):  # accesses behind the last repeat the last: they read and write the same element
                    pair = i.divided(int32(number + n * threads), reads_multiplier, reads_shift)
                    row = int32((number + n * threads - pair * reads) * READ)
                    row, pair = min(row, int32(high - READ)), min(pair, int32(pairs - 1))
                    column = int32(pair * PAIR)
                    places[n] = (row >> SHIFT) * group + pair * CELL
                    from_ = at(there, STEP(row), source_row)
                    for more in range(PAIR):
                        last = min(int32(column + more), int32(wide - 1))
                        load(words, (n * PAIR + more) * IN_WORDS, at(from_, STEP(last), source_column))
                for n in range(LOADS):
                    put_rows(words, n * PAIR * IN_WORDS, shared + places[n], pitch)
                number = int32(number + LOADS * threads)
            wait_for_block()

        writes, writes_multiplier, writes_shift = int32(writes), int32(writes_multiplier), int32(writes_shift)
        number, all_writes = thread, int32(writes * high)
        while number < all_writes:
            for n in range(STORES):
                row = i.divided(int32(number + n * threads), writes_multiplier, writes_shift)
                column = int32((number + n * threads - row * writes) * WRITTEN)
                row, column = min(row, int32(high - 1)), min(column, int32(wide - WRITTEN))
                if TURNED:
                    line = int32((row >> SHIFT) * group + (row & REST) * pitch)
                    take(words, n * OUT_WORDS, shared + line + column * SIZE)
                else:
                    take(words, n * OUT_WORDS, at(at(there, STEP(row), source_row), STEP(column), source_column))
            for n in range(STORES):
                row = i.divided(int32(number + n * threads), writes_multiplier, writes_shift)
                column = int32((number + n * threads - row * writes) * WRITTEN)
                if row < high and column < wide:
                    for word in range(OUT_WORDS):
                        some[word] = words[n * OUT_WORDS + word]
                    store(at(at(here, STEP(row), target_row), STEP(column), target_column), some)
            number = int32(number + STORES * threads)

    return copy
