"""Sums over rows: in float32 within a block of rows, in float64 across blocks and tasks.

The relative error of a float32 sum over 8192 rows exceeds 1e-6. Over a block it does not, and it uses the full width of
the vector unit. A task is a range of rows. It adds its blocks in its own row of a float64 array, and a second kernel
adds those rows. The order of additions depends on the shape alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import array_type, load, real, store
from gradkern.cpu.threads import QUEUE, take

BLOCK = 64  # rows summed in float32
SPAN = 2048  # elements of one row summed in float32, in the 16 or more lanes of vector code
PARTIAL = types.Array(types.float64, 1, "C")

_LEAST_ROWS = 32  # of a task: its row of partial sums must cost little compared to its rows
_MOST_TASKS = 64
_COLUMNS = 512  # of partial sums in one task of the second kernel


def rows_per_task(rows: int) -> int:
    """The number of rows of a task."""
    return max(_LEAST_ROWS, -(-rows // _MOST_TASKS))


@numba.njit(**INLINE)
def flush(block: Any, partial: Any, offset: int) -> None:
    """Add a block's sums to the task's, and start the next block from zero."""
    for column in range(block.size):
        store(partial, offset + column, load(partial, offset + column) + load(block, column))
        store(block, column, real(block, 0))


@numba.njit(**INLINE)
def _add_columns(partial: Any, rows: int, columns: int, begin: int, total: Any) -> None:
    width = min(columns - begin, _COLUMNS)
    accumulated = np.zeros(width, np.float64)
    for row in range(rows):
        offset = row * columns + begin
        for column in range(width):
            store(accumulated, column, load(accumulated, column) + load(partial, offset + column))
    for column in range(width):
        store(total, begin + column, real(total, accumulated[column]))


@kernel
def _add_rows(
    queue: Any, first: Any, second: Any, third: Any, first_total: Any, second_total: Any, third_total: Any,
    rows: int, columns: int,
) -> None:  # fmt: skip
    """Adds partial sums. A task has some columns of the sums that are not None."""
    task = take(queue)
    while task >= 0:
        if first is not None:
            _add_columns(first, rows, columns, task * _COLUMNS, first_total)
        if second is not None:
            _add_columns(second, rows, columns, task * _COLUMNS, second_total)
        if third is not None:
            _add_columns(third, rows, columns, task * _COLUMNS, third_total)
        task = take(queue)


def fold(rows: int, columns: int) -> int:
    """The number of narrow rows to merge, so that loops over columns are long enough for vector code.

    Parameters of columns are then repeated, and a row of partial sums counts as this many rows.
    """
    return max(1, min(rows, _COLUMNS // max(1, columns)))


class RowSums:
    """The second step of up to three sums over rows: rows of partial sums, one for each task (or more: see fold), added
    up.

    dtypes holds their element types; None for a sum that is not requested, also in partial sums and totals.
    """

    def __init__(self, rows: int, columns: int, dtypes: Sequence[np.dtype | None]) -> None:
        self._shape = (rows, columns)
        self._tasks = -(-columns // _COLUMNS)
        self._left = [None] * (3 - len(dtypes))
        self._wanted = [dtype is not None for dtype in dtypes]
        self.types = [PARTIAL if wanted else types.none for wanted in self._wanted]
        self.nbytes = 8 * rows * columns * sum(self._wanted)
        self._compiled = None
        if any(self._wanted):
            totals = [types.none if dtype is None else array_type(dtype) for dtype in dtypes]
            left = [types.none for _ in self._left]
            self._compiled = _add_rows(QUEUE, *self.types, *left, *totals, *left, types.int64, types.int64)

    def partials(self) -> list[np.ndarray | None]:
        """Memory for the partial sums, uninitialised."""
        rows, columns = self._shape
        made = [np.empty(rows * columns) if wanted else None for wanted in self._wanted]
        if threads.state.recording is not None:
            threads.state.recording.memory += [each for each in made if each is not None]
        return made

    def add(self, partials: Sequence[np.ndarray | None], totals: Sequence[np.ndarray | None]) -> None:
        """Add up the partial sums into the totals."""
        if self._compiled is not None:
            sums = (*partials, *self._left, *totals, *self._left)
            threads.run(self._compiled, self._tasks, self.nbytes, *sums, *self._shape)
