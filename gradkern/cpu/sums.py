"""Sums over rows: in float32 within a block of rows, in float64 across blocks and tasks.

A float32 sum over 8192 rows is off by more than 1e-6 of itself; over a block it is not, and it runs at the full width
of the vector unit. A task is a range of rows; it adds its blocks up in a row of its own in a float64 array, and a
second kernel adds those rows. So the order of additions depends on the shape alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.cpu import team
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.storage import array_type, load, real, store
from gradkern.cpu.team import QUEUE, take

__all__ = ["BLOCK", "PARTIAL", "SPAN", "RowSums", "flush", "fold", "rows_per_task"]

BLOCK = 64  # rows summed in float32
SPAN = 2048  # elements of one row summed in float32, in the 16 or more lanes of vector code
PARTIAL = types.Array(types.float64, 1, "C")

_LEAST_ROWS = 32  # a task's row of partial sums must cost little beside its rows
_MOST_TASKS = 64
_COLUMNS = 512  # of partial sums that one task of the second kernel adds


def rows_per_task(rows: int) -> int:
    """How many rows make a task."""
    return max(_LEAST_ROWS, -(-rows // _MOST_TASKS))


@numba.njit(**INLINE)
def flush(block: Any, partial: Any, offset: int) -> None:
    """Add a block's sums to the task's, and start the next block from zero."""
    for column in range(block.size):
        store(partial, offset + column, load(partial, offset + column) + load(block, column))
        store(block, column, real(block, 0))


@kernel
def _add_rows(queue: Any, partial: Any, rows: int, columns: int, total: Any) -> None:
    task = take(queue)
    while task >= 0:
        begin = task * _COLUMNS
        width = min(columns - begin, _COLUMNS)
        accumulated = np.zeros(width, np.float64)
        for row in range(rows):
            offset = row * columns + begin
            for column in range(width):
                accumulated[column] += load(partial, offset + column)
        for column in range(width):
            store(total, begin + column, real(total, accumulated[column]))
        task = take(queue)


def fold(rows: int, columns: int) -> int:
    """How many narrow rows to take as one, so that loops over columns are long enough for vector code.

    What is given for each column is then repeated; a row of partial sums is as many rows as were folded.
    """
    return max(1, min(rows, _COLUMNS // max(1, columns)))


class RowSums:
    """The second step of sums over rows: rows of partial sums, one for each task (or more: see fold), added up.

    dtypes holds the element type of each sum, None for one that is not wanted and has None for partial sums and total.
    """

    def __init__(self, rows: int, columns: int, dtypes: Sequence[np.dtype | None]) -> None:
        self._shape = (rows, columns)
        self._tasks = -(-columns // _COLUMNS)
        self._compiled = [
            None if dtype is None else _add_rows(QUEUE, PARTIAL, types.int64, types.int64, array_type(dtype))
            for dtype in dtypes
        ]
        self.types = [types.none if dtype is None else PARTIAL for dtype in dtypes]
        self.nbytes = 8 * rows * columns * sum(dtype is not None for dtype in dtypes)

    def partials(self) -> list[np.ndarray | None]:
        """Memory for the partial sums, uninitialised."""
        rows, columns = self._shape
        return [None if compiled is None else np.empty(rows * columns) for compiled in self._compiled]

    def add(self, partials: Sequence[np.ndarray | None], totals: Sequence[np.ndarray | None]) -> None:
        """Add up the partial sums into the totals."""
        for compiled, partial, total in zip(self._compiled, partials, totals, strict=True):
            if compiled is not None:
                team.run(compiled, self._tasks, self.nbytes, partial, *self._shape, total)
