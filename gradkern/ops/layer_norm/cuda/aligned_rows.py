"""The place of rows with aligned vectors (see RowConfig): a block takes rows of one shift, its threads have fixed
columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.row_config import RowConfig


def aligned_rows(config: RowConfig) -> tuple[Callable[..., Any], Callable[..., int]]:
    """Two device functions:

    place_of(block, first_column, slice_columns, columns)
        the block's place in its tuple, the size of the tuple, the column of the row where the block's first vector
        begins, and the number of its columns from there
    elements_inside(lane, start, end)
        a bit for each of the thread's elements: set if it is between `start` and `end` of the block's columns
    """
    WIDTH, LANES, VECTORS = config.width, config.lanes, config.vectors
    ROW = int64 if config.long_rows else int32

    @device_function
    def place_of(block: int, first_column: int, slice_columns: int, columns: int) -> tuple[int, int, int, int]:
        period = i.quotient(int32(WIDTH), int32(min(WIDTH, columns & -columns)))
        place = int32(block & (period - 1))
        origin = int64(first_column) - ((place * int32(columns)) & (WIDTH - 1))
        return place, period, origin, ROW(min(slice_columns, columns - origin))

    @device_function
    def elements_inside(lane: int, start: int, end: int) -> int:
        inside = int32(0)
        for j in range(VECTORS):
            first = int32((lane + j * LANES) * WIDTH)
            before, until = min(max(start - first, 0), WIDTH), min(max(end - first, 0), WIDTH)
            inside |= int32(((1 << until) - 1) & -(1 << before)) << (j * WIDTH)
        return i.opaque(int32(inside))  # else the compiler keeps the values it was computed from in registers

    return place_of, elements_inside
