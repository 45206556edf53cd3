"""The kernel of both GELU gradients. `build(form)` binds its constants; see BiasGeluForm for their meaning.

    dX = dY * slope(X + B)                     (gelu_derivative has the slopes)
    dB = sum dX over the rows, before rounding

The matrix is cut into tiles: some rows in a slice of columns. Each thread has one vector of columns and `unroll` rows,
all of whose loads are under way before the first is used; it loads its biases once.

For dX alone every tile has a block of its own. For dB each tile leaves one row of partial sums (column_sums), the same
whichever block does it. The blocks are persistent, and draw the next tile by a ticket: so the rows that are on their
way are neighbours in memory, and all blocks end together; with a fixed share for each it takes 3 to 5 % longer. The
next tile's loads are under way while a tile's sums are added up. Few rows are one tile for each slice: its sums are the
result.
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
from gradkern.ops.bias_gelu.cuda.gelu_derivative import slope_of

__all__ = ["build"]


def build(form: BiasGeluForm) -> Callable[..., None]:
    """The kernel for `form`, as a function that Numba compiles with every argument an int64."""
    COLUMNS, WIDTH, LANES, SLICES, SLICE = form.columns, form.width, form.lanes, form.slices, form.slice_columns
    GROUP_THREADS, GROUP_ROWS, BLOCK_ROWS = form.group_threads, form.group_rows, form.warp_groups * form.group_rows
    UNROLL, TILE_ROWS, FULL = form.unroll, form.tile_rows, form.full_vectors == 1
    FOLDED, BIASES, BIAS_WIDTH = form.fold > 1, form.columns // form.fold, form.bias_width
    DX, DB, PERSISTENT, PACKED = "dX" in form.outputs, "dB" in form.outputs, form.persistent, form.packed
    ITEM, PARAMETER = form.itemsize, ITEMSIZE[form.parameter]
    VECTOR = WIDTH * ITEM
    WORDS = max(1, VECTOR // 4)
    HELD = UNROLL * WORDS
    FLOAT = float64 if form.compute == "float64" else float32
    ROW = int64 if form.long_rows else int32

    load = i.word_loader("global", VECTOR)
    unpack = i.unpacker(form.data, WIDTH)
    load_one = i.loader("global", form.data, 1)
    load_biases = i.loader("global", form.parameter, BIAS_WIDTH)
    store = i.storer("global", form.data, WIDTH, form.native_bfloat16)
    store_one = i.storer("global", form.data, 1, form.native_bfloat16)
    slope = slope_of(form.fast, form.compute, form.native_bfloat16)
    add_over_block, add_over_grid = column_sums(form.column_sums) if DB else (None, None)

    @device_function
    def load_tile(
        x: Any, d: Any, X: int, dY: int, X_stride: int, dY_stride: int, tile: int, rows: int, block_row: int, lane: int
    ) -> None:
        """This thread's vectors of a tile. A place beyond the last row or column repeats what is there."""
        first_column = int32(tile % SLICES) * SLICE
        first = lane * WIDTH
        if not FULL:
            first = min(first, min(SLICE, COLUMNS - first_column) - WIDTH)
        offset = int64(first_column + first) * ITEM
        for u in range(UNROLL):
            row = min(ROW(tile // SLICES * TILE_ROWS + u * BLOCK_ROWS + block_row), ROW(rows - 1))
            load(x, u * WORDS, X + int64(row) * X_stride + offset)
            load(d, u * WORDS, dY + int64(row) * dY_stride + offset)

    def kernel(
        dY: int, X: int, B: int, dX: int, dB: int, partial: int, counter: int,
        rows: int, tail: int, dY_stride: int, X_stride: int, dX_stride: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        group = int32(thread // GROUP_THREADS)
        group_thread = int32(thread - group * GROUP_THREADS)
        lane = int32(group_thread % LANES)
        block_row = int32(group * GROUP_ROWS + group_thread // LANES)  # this thread's, of those of the block at a time
        if PACKED:  # constants need no registers
            X_stride = dY_stride = dX_stride = COLUMNS * ITEM
        rows = ROW(rows)
        chunks = ROW((rows + TILE_ROWS - 1) // TILE_ROWS)
        tiles = ROW(chunks * SLICES)

        x, d = cuda.local.array(HELD, int32), cuda.local.array(HELD, int32)
        z, out = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        biases, sums = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)

        tile = ROW(cuda.blockIdx.x)
        load_tile(x, d, X, dY, X_stride, dY_stride, tile, rows, block_row, lane)
        while tile < tiles:
            ticket = int32(0)
            if PERSISTENT and thread == 0:  # the answer comes while the tile is done
                ticket = i.take(counter + 128)
            slice_, chunk = int32(tile % SLICES), ROW(tile // SLICES)
            first_column = slice_ * SLICE
            columns = int32(min(SLICE, COLUMNS - first_column))
            has_columns = FULL or lane * WIDTH < columns
            first = int32(lane * WIDTH if has_columns else 0)
            for part in range(WIDTH // BIAS_WIDTH):
                column = first_column + first + part * BIAS_WIDTH
                load_biases(z, B + int64(column % BIASES) * PARAMETER)
                for e in range(BIAS_WIDTH):
                    biases[part * BIAS_WIDTH + e] = z[e]
            for e in range(WIDTH):
                sums[e] = FLOAT(0)
            dX_at = dX + int64(first_column + first) * ITEM

            for u in range(UNROLL):
                row = ROW(chunk * TILE_ROWS + u * BLOCK_ROWS + block_row)
                unpack(z, x, u * WORDS)
                unpack(out, d, u * WORDS)
                for e in range(WIDTH):
                    out[e] = out[e] * slope(z[e] + biases[e])
                if row < rows and has_columns:
                    if DX:
                        store(dX_at + int64(row) * dX_stride, out)
                    if DB:
                        for e in range(WIDTH):
                            sums[e] += out[e]

            if FOLDED and chunk == 0 and block_row == 0 and has_columns:
                # the array's last rows, too few for one of the kernel's: element by element
                for e in range(WIDTH):
                    column = int64(first_column + first + e)
                    if column < tail:
                        load_one(z, X + int64(rows) * X_stride + column * ITEM)
                        load_one(out, dY + int64(rows) * dY_stride + column * ITEM)
                        out[0] = out[0] * slope(z[0] + biases[e])
                        if DX:
                            store_one(dX + int64(rows) * dX_stride + column * ITEM, out)
                        if DB:
                            sums[e] += out[0]

            if PERSISTENT:
                if thread == 0:
                    i.store_word(i.shared_memory(), ticket)
                cuda.syncthreads()
                tile = ROW(cuda.gridDim.x + i.load_word(i.shared_memory()))
                if tile < tiles:
                    load_tile(x, d, X, dY, X_stride, dY_stride, tile, rows, block_row, lane)
            if DB:
                add_over_block(sums, sums, partial, B, dB, dB, slice_, chunk, columns)
            if not PERSISTENT:
                break
        if PERSISTENT:
            add_over_grid(partial, counter, B, dB, dB, chunks * BLOCK_ROWS, chunks)

    return kernel
