"""The kernel of both GELUs and their gradients. `build(form)` binds its constants; see BiasGeluForm for their meaning.

    dX = dY * slope(X + B)                     (gelu_derivative has the slopes)
    dB = sum dX over the rows, before rounding
    gelu(X + B), where form.forward            (to where dX goes; there is no dY)

The matrix is cut into tiles: some rows in a slice of columns. Each thread has one vector of columns and `unroll` rows,
all of whose loads are under way before the first is used; it loads its biases once.

For dX alone every tile has a block of its own. For dB each tile leaves one row of partial sums (column_sums), the same
whichever block does it. The blocks are persistent, and draw the next tile by a ticket: so the rows that are on their
way are neighbours in memory, and all blocks end together; with a fixed share for each it takes 3 to 5 % longer. The
next tile's loads are under way while a tile's sums are added up. Few rows are one tile for each slice: its sums are the
result.

Where a row of the kernel is several of the array, the array's last rows may be too few for one: the kernel's last row
then has the first `tail` columns alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.column_sums import column_sums
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.bias_gelu.cuda.form import BiasGeluForm
from gradkern.ops.bias_gelu.cuda.gelu_derivative import gelu_of, slope_of

__all__ = ["build"]


def build(form: BiasGeluForm) -> Callable[..., None]:
    """The kernel for `form`, as a function that Numba compiles with every argument an int64."""
    WIDTH, LANES, SLICE = form.width, form.lanes, form.most_columns
    GROUP_THREADS, GROUP_ROWS, BLOCK_ROWS = form.group_threads, form.group_rows, form.warp_groups * form.group_rows
    UNROLL, TILE_ROWS, WHOLE = form.unroll, form.tile_rows, form.whole
    FOLDED, BIAS_WIDTH = form.folded, form.bias_width
    DX, DB, PERSISTENT = "dX" in form.outputs, "dB" in form.outputs, form.persistent
    ITEM, PARAMETER = form.itemsize, ITEMSIZE[form.parameter]
    VECTOR = WIDTH * ITEM
    WORDS = max(1, VECTOR // 4)
    HELD = UNROLL * WORDS
    FLOAT = float64 if form.compute == "float64" else float32
    ROW = int64 if form.long_rows else int32
    row_address = i.row_address_long if form.long_rows else i.row_address

    load = i.word_loader("global", VECTOR)
    unpack = i.unpacker(form.data, WIDTH)
    load_one = i.loader("global", form.data, 1)
    load_biases = i.loader("global", form.parameter, BIAS_WIDTH)
    store = i.storer("global", form.data, WIDTH, form.native_bfloat16)
    store_one = i.storer("global", form.data, 1, form.native_bfloat16)
    FORWARD = form.forward
    slope = slope_of(form.fast, form.compute, form.finest, form.native_bfloat16)
    gelu = gelu_of(form.fast, form.compute, form.finest, form.native_bfloat16)
    add_over_block, add_over_grid = column_sums(form.column_sums) if DB else (None, None)

    @device_function
    def load_tile(
        x: Any, d: Any, X: int, dY: int, X_stride: int, dY_stride: int, slice_: int, chunk: int, rows: int,
        tail: int, columns: int, block_row: int, lane: int,
    ) -> None:  # fmt: skip
        """This thread's vectors of a tile. A place beyond the last row or column repeats what is there."""
        column = ROW(ROW(slice_) * SLICE + lane * WIDTH)
        if not WHOLE:
            column = min(column, ROW(columns - WIDTH))
        last = ROW(rows - 1)
        if FOLDED and column + WIDTH <= tail:
            last = rows
        for u in range(UNROLL):
            row = min(ROW(ROW(chunk) * TILE_ROWS + u * BLOCK_ROWS + block_row), last)
            load(x, u * WORDS, row_address(X, row, X_stride) + int64(column) * ITEM)
            if not FORWARD:
                load(d, u * WORDS, row_address(dY, row, dY_stride) + int64(column) * ITEM)

    def kernel(
        dY: int, X: int, B: int, dX: int, dB: int, partial: int, counter: int,
        rows: int, tail: int, dY_stride: int, X_stride: int, dX_stride: int,
        columns: int, repeat: int, slices: int, multiplier: int, shift: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        group = int32(thread // GROUP_THREADS)
        group_thread = int32(thread - group * GROUP_THREADS)
        lane = int32(group_thread % LANES)
        block_row = int32(group * GROUP_ROWS + group_thread // LANES)  # this thread's, of those of the block at a time
        # an address is then one multiplication of 32 bits
        X_stride, dY_stride, dX_stride = ROW(X_stride), ROW(dY_stride), ROW(dX_stride)
        rows, columns, slices, tail, repeat = ROW(rows), ROW(columns), int32(slices), ROW(tail), ROW(repeat)
        multiplier, shift = int32(multiplier), int32(shift)
        all_rows = rows
        if FOLDED and tail > 0:
            all_rows = ROW(rows + 1)
        chunks = int32((all_rows + TILE_ROWS - 1) // TILE_ROWS)
        tiles = int32(chunks * slices)

        x, d = cuda.local.array(HELD, int32), cuda.local.array(HELD, int32)
        z, out = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        biases, sums = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)

        tile = int32(cuda.blockIdx.x)
        chunk = i.divided(tile, multiplier, shift)
        slice_ = int32(tile - chunk * slices)
        load_tile(x, d, X, dY, X_stride, dY_stride, slice_, chunk, rows, tail, columns, block_row, lane)
        while tile < tiles:
            ticket = int32(0)
            if PERSISTENT and thread == 0:  # the answer comes while the tile is done
                ticket = i.take(counter + 128)
            first_column = ROW(ROW(slice_) * SLICE)
            first = ROW(first_column + lane * WIDTH)
            has_columns = WHOLE or first < columns
            if not has_columns:
                first = first_column
            own_rows = rows  # that have this thread's vector
            if FOLDED and first + WIDTH <= tail:
                own_rows = all_rows
            bias = first
            if FOLDED:
                bias = ROW(first - i.quotient(first, repeat) * repeat)
            for part in range(WIDTH // BIAS_WIDTH):
                load_biases(z, B + int64(bias) * PARAMETER)
                bias = ROW(bias + BIAS_WIDTH)
                if FOLDED and bias == repeat:
                    bias = ROW(0)
                for e in range(BIAS_WIDTH):
                    biases[part * BIAS_WIDTH + e] = z[e]
            for e in range(WIDTH):
                sums[e] = FLOAT(0)
            dX_at = dX + int64(first) * ITEM

            for u in range(UNROLL):
                row = ROW(ROW(chunk) * TILE_ROWS + u * BLOCK_ROWS + block_row)
                unpack(z, x, u * WORDS)
                if not FORWARD:
                    unpack(out, d, u * WORDS)
                for e in range(WIDTH):
                    out[e] = gelu(z[e] + biases[e]) if FORWARD else out[e] * slope(z[e] + biases[e])
                if row < own_rows and has_columns:
                    if DX:
                        store(row_address(dX_at, row, dX_stride), out)
                    if DB:
                        for e in range(WIDTH):
                            sums[e] += out[e]

            if FOLDED and chunk == 0 and block_row == 0 and has_columns and first < tail and tail < first + WIDTH:
                # the array's last elements, too few for a vector: one by one
                for e in range(WIDTH):
                    column = int64(first + e)
                    if column < tail:
                        load_one(z, row_address(X, rows, X_stride) + column * ITEM)
                        if not FORWARD:
                            load_one(out, row_address(dY, rows, dY_stride) + column * ITEM)
                        out[0] = gelu(z[0] + biases[e]) if FORWARD else out[0] * slope(z[0] + biases[e])
                        if DX:
                            store_one(row_address(dX, rows, dX_stride) + column * ITEM, out)
                        if DB:
                            sums[e] += out[0]

            if PERSISTENT:
                if thread == 0:
                    i.store_word(i.shared_memory(), ticket)
                cuda.syncthreads()
                tile = int32(cuda.gridDim.x + i.load_word(i.shared_memory()))
                next_chunk = i.divided(tile, multiplier, shift)
                next_slice = int32(tile - next_chunk * slices)
                if tile < tiles:
                    load_tile(x, d, X, dY, X_stride, dY_stride, next_slice, next_chunk, rows, tail,
                              columns, block_row, lane)  # fmt: skip
            if DB:
                own = int32(min(ROW(SLICE), ROW(columns - first_column)))
                add_over_block(sums, sums, sums, partial, B, dB, dB, dB, chunk, first_column, own, columns)
            if PERSISTENT:
                slice_, chunk = next_slice, next_chunk
            if not PERSISTENT:
                break
        if PERSISTENT:
            add_over_grid(partial, counter, B, dB, dB, dB, chunks * BLOCK_ROWS, chunks, columns)

    return kernel
