"""The kernel that copies an array from one layout to another, tile by tile."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics

__all__ = ["build"]


def build(dtype: str, turned: bool, elements: int) -> Callable[..., None]:
    """The kernel: a tile of rows and columns, which lie apart by so many bytes in the source and in the target, and one
    after the other along each of the axes d, by the strides s and t.

    The columns lie closest in the target. turned: in the source the rows do, so a tile passes through shared memory of
    so many elements, for threads side by side to read and to write what lies side by side.
    """
    load_one = intrinsics.loader("global", dtype, 1)
    store_one = intrinsics.storer("global", dtype, 1, False)
    WORK = float64 if dtype == "float64" else float32
    TURNED, ELEMENTS = turned, elements if turned else 1

    def copy(
        source: int, target: int, tiles: int,
        rows: int, columns: int, tile_rows: int, tile_columns: int,
        source_row: int, source_column: int, target_row: int, target_column: int,
        d0: int, d1: int, d2: int, d3: int, d4: int, d5: int,
        s0: int, s1: int, s2: int, s3: int, s4: int, s5: int,
        t0: int, t1: int, t2: int, t3: int, t4: int, t5: int,
    ) -> None:  # fmt: skip
        value = cuda.local.array(1, WORK)
        shared = cuda.shared.array(ELEMENTS, WORK)
        thread, threads = int64(cuda.threadIdx.x), int64(cuda.blockDim.x)
        pitch = tile_columns | 1  # odd, so that no two threads of a warp meet in one bank
        down, across = -(-rows // tile_rows), -(-columns // tile_columns)
        tile = int64(cuda.blockIdx.x)
        while tile < tiles:
            first_column, rest = tile % across * tile_columns, tile // across
            first_row, rest = rest % down * tile_rows, rest // down
            i5, rest = rest % d5, rest // d5
            i4, rest = rest % d4, rest // d4
            i3, rest = rest % d3, rest // d3
            i2, rest = rest % d2, rest // d2
            i1, i0 = rest % d1, rest // d1
            read = source + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4 + i5 * s5
            write = target + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3 + i4 * t4 + i5 * t5
            read += first_row * source_row + first_column * source_column
            write += first_row * target_row + first_column * target_column
            high, wide = min(tile_rows, rows - first_row), min(tile_columns, columns - first_column)
            if TURNED:
                row, column = thread % high, thread // high
                rows_on, columns_on = threads % high, threads // high  # from an element to the thread's next
                while column < wide:
                    load_one(value, read + row * source_row + column * source_column)
                    shared[row * pitch + column] = value[0]
                    row, column = row + rows_on, column + columns_on
                    if row >= high:
                        row, column = row - high, column + 1
                cuda.syncthreads()
            row, column = thread // wide, thread % wide
            rows_on, columns_on = threads // wide, threads % wide
            while row < high:
                if TURNED:
                    value[0] = shared[row * pitch + column]
                else:
                    load_one(value, read + row * source_row + column * source_column)
                store_one(write + row * target_row + column * target_column, value)
                row, column = row + rows_on, column + columns_on
                if column >= wide:
                    row, column = row + 1, column - wide
            if TURNED:
                cuda.syncthreads()
            tile += int64(cuda.gridDim.x)

    return copy
