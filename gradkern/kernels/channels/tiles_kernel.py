"""The element-wise kernel for a matrix with parameters for each column, and with sums over rows.

An operator provides the arithmetic as device functions:

    load_parameters(p, q, n, column, addresses)   loads parameters of `parameters_at_once` columns into p[n:], q[n:]
    element(x, d, p, q) -> dX, first, second      for one element; `first` and `second` are added up without rounding
    finish(part, column, sum, operand)            as in column_sums, or None

The matrix is divided into tiles: some rows of a slice of columns. Each thread has one vector of columns and `unroll`
rows. It issues all loads before it uses the first, and loads its columns' parameters once.

Without sums every tile has its own block. With sums each tile writes one row of partial sums (column_sums), independent
of the block that processes it. Blocks are persistent and take the next tile by an atomic counter: rows in flight are
then neighbours in memory, and all blocks finish together. A fixed share of tiles for each block takes 3 to 5 % longer.
The next tile's loads are in flight while a tile's sums are added up. A slice's first tiles have `times` as many rows as
the last ones. Where rows are few, each slice is one tile: its sums are the result.

Where a row of the kernel is several rows of the array, the array's last rows may not fill one: the kernel's last row
then has only the first `tail` columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import take_ticket, wait_for_block
from gradkern.cuda.device_code.column_sums import column_sums
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.tiles_config import TilesConfig


def tiles_kernel(
    config: TilesConfig,
    load_parameters: Callable[..., None],
    element: Callable[..., Any],
    finish: Callable[..., Any] | None = None,
) -> Callable[..., None]:
    """The kernel for `config` with this arithmetic, as a function that Numba compiles with every argument (ARGUMENTS)
    an int64. finish: its operand is the address of the last of the parameters.
    """
    WIDTH, LANES, SLICE = config.width, config.lanes, config.most_columns
    GROUP_THREADS, GROUP_ROWS, BLOCK_ROWS = (
        config.group_threads,
        config.group_rows,
        config.groups_per_block * config.group_rows,
    )
    UNROLL, TILE_ROWS, WHOLE = config.unroll, config.tile_rows, config.whole
    FOLDED, AT_ONCE = config.folded, config.parameters_at_once
    READS_D, DX, SUMS, PERSISTENT = config.reads_D, "dX" in config.outputs, config.sums, config.persistent
    ITEM = config.data_itemsize
    VECTOR = WIDTH * ITEM
    WORDS = max(1, VECTOR // 4)
    HELD = UNROLL * WORDS
    FLOAT = float64 if config.compute == "float64" else float32
    ROW = int64 if config.long_rows else int32
    row_address = i.row_address_long if config.long_rows else i.row_address

    load = i.word_loader("global", VECTOR)
    unpack = i.unpacker(config.data, WIDTH)
    load_one = i.loader("global", config.data, 1)
    store = i.storer("global", config.data, WIDTH, config.native_bfloat16)
    store_one = i.storer("global", config.data, 1, config.native_bfloat16)
    add_over_block, add_over_grid = column_sums(config.column_sums, finish) if SUMS else (None, None)

    @device_function
    def first_row_of(chunk: int, large: int, more: int) -> int:
        if SUMS > 0:
            chunk = int32(chunk + min(chunk, large) * more)
        return ROW(ROW(chunk) * TILE_ROWS)

    @device_function
    def load_tile(
        x: Any, d: Any, X: int, D: int, X_stride: int, D_stride: int, slice_: int, first_row: int, rows: int,
        tail: int, columns: int, block_row: int, lane: int,
    ) -> None:  # fmt: skip
        """Loads this thread's vectors of a tile. Places beyond the last row or column repeat it."""
        column = ROW(ROW(slice_) * SLICE + lane * WIDTH)
        if not WHOLE:
            column = min(column, ROW(columns - WIDTH))
        last = ROW(rows - 1)
        if FOLDED and column + WIDTH <= tail:
            last = rows
        for u in range(UNROLL):
            row = min(ROW(first_row + u * BLOCK_ROWS + block_row), last)
            load(x, u * WORDS, row_address(X, row, X_stride) + int64(column) * ITEM)
            if READS_D:
                load(d, u * WORDS, row_address(D, row, D_stride) + int64(column) * ITEM)

    def kernel(
        D: int, X: int, first_parameter: int, dX: int, first_sum: int, partial: int, counter: int,
        rows: int, tail: int, D_stride: int, X_stride: int, dX_stride: int,
        columns: int, repeat: int, slices: int, multiplier: int, shift: int, large: int, times: int,
        second_parameter: int, third_parameter: int, second_sum: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        group = int32(thread // GROUP_THREADS)
        group_thread = int32(thread - group * GROUP_THREADS)
        lane = int32(group_thread % LANES)
        block_row = int32(group * GROUP_ROWS + group_thread // LANES)  # this thread's row among those of the block
        # an address then takes one 32-bit multiplication
        X_stride, D_stride, dX_stride = ROW(X_stride), ROW(D_stride), ROW(dX_stride)
        rows, columns, slices, tail, repeat = ROW(rows), ROW(columns), int32(slices), ROW(tail), ROW(repeat)
        multiplier, shift = int32(multiplier), int32(shift)
        all_rows = rows
        if FOLDED and tail > 0:
            all_rows = ROW(rows + 1)
        large, more = int32(large), int32(times - 1)
        chunks = int32((all_rows + TILE_ROWS - 1) // TILE_ROWS)
        if SUMS > 0:
            chunks = int32(chunks - large * more)
        tiles = int32(chunks * slices)

        x, d = cuda.local.array(HELD, int32), cuda.local.array(HELD, int32)
        z, out = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        p, q = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        first, second = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        first_sums, second_sums = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        parameters = (first_parameter, second_parameter, third_parameter)

        tile = int32(cuda.blockIdx.x)
        chunk = i.divided(tile, multiplier, shift)
        slice_ = int32(tile - chunk * slices)
        first_row = first_row_of(chunk, large, more)
        load_tile(x, d, X, D, X_stride, D_stride, slice_, first_row, rows, tail, columns, block_row, lane)
        while tile < tiles:
            ticket = int32(0)
            if PERSISTENT and thread == 0:  # the result arrives while the tile is processed
                ticket = take_ticket(counter)
            first_column = ROW(ROW(slice_) * SLICE)
            own_column = ROW(first_column + lane * WIDTH)
            has_columns = WHOLE or own_column < columns
            if not has_columns:
                own_column = first_column
            own_rows = rows  # rows that have this thread's vector
            if FOLDED and own_column + WIDTH <= tail:
                own_rows = all_rows
            column = own_column
            if FOLDED:
                column = ROW(own_column - i.quotient(own_column, repeat) * repeat)
            for part in range(WIDTH // AT_ONCE):
                load_parameters(p, q, part * AT_ONCE, column, parameters)
                column = ROW(column + AT_ONCE)
                if FOLDED and column == repeat:
                    column = ROW(0)
            for e in range(WIDTH):
                first_sums[e] = FLOAT(0)
                second_sums[e] = FLOAT(0)
            dX_at = dX + int64(own_column) * ITEM

            left = more if chunk < large else int32(0)
            while True:
                for u in range(UNROLL):
                    row = ROW(first_row + u * BLOCK_ROWS + block_row)
                    unpack(z, x, u * WORDS)
                    if READS_D:
                        unpack(out, d, u * WORDS)
                    for e in range(WIDTH):
                        out[e], first[e], second[e] = element(z[e], out[e], p[e], q[e])
                    if row < own_rows and has_columns:
                        if DX:
                            store(row_address(dX_at, row, dX_stride), out)
                        for e in range(WIDTH):
                            if SUMS > 0:
                                first_sums[e] += first[e]
                            if SUMS > 1:
                                second_sums[e] += second[e]
                if SUMS == 0 or left == 0:
                    break
                left = int32(left - 1)
                first_row = ROW(first_row + TILE_ROWS)
                load_tile(x, d, X, D, X_stride, D_stride, slice_, first_row, rows, tail, columns, block_row, lane)

            if FOLDED and chunk == 0 and block_row == 0 and has_columns and own_column < tail < own_column + WIDTH:
                # the array's last elements, fewer than a vector: one by one
                for e in range(WIDTH):
                    place = int64(own_column + e)
                    if place < tail:
                        load_one(z, row_address(X, rows, X_stride) + place * ITEM)
                        if READS_D:
                            load_one(out, row_address(D, rows, D_stride) + place * ITEM)
                        out[0], first[0], second[0] = element(z[0], out[0], p[e], q[e])
                        if DX:
                            store_one(row_address(dX, rows, dX_stride) + place * ITEM, out)
                        if SUMS > 0:
                            first_sums[e] += first[0]
                        if SUMS > 1:
                            second_sums[e] += second[0]

            if PERSISTENT:
                if thread == 0:
                    i.store_word(i.shared_memory(), ticket)
                wait_for_block()
                tile = int32(cuda.gridDim.x + i.load_word(i.shared_memory()))
                next_chunk = i.divided(tile, multiplier, shift)
                next_slice = int32(tile - next_chunk * slices)
                first_row = first_row_of(next_chunk, large, more)
                if tile < tiles:
                    load_tile(x, d, X, D, X_stride, D_stride, next_slice, first_row, rows, tail,
                              columns, block_row, lane)  # fmt: skip
            if SUMS > 0:
                own = int32(min(ROW(SLICE), ROW(columns - first_column)))
                add_over_block(first_sums, second_sums, second_sums, partial, third_parameter,
                               first_sum, second_sum, second_sum, chunk, first_column, own, columns)  # fmt: skip
            if PERSISTENT:
                slice_, chunk = next_slice, next_chunk
            if not PERSISTENT:
                break
        if PERSISTENT:
            add_over_grid(partial, counter, third_parameter, first_sum, second_sum, second_sum,
                          chunks * BLOCK_ROWS, chunks, columns)  # fmt: skip

    return kernel
