"""Both GELUs on the CPU: one kernel over the elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel, widest_vectors
from gradkern.cpu.element_types import destination, load, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.gelu import exact_gelu, fast_gelu
from gradkern.cpu.sums import fold, rows_per_task
from gradkern.cpu.threads import QUEUE, take

__all__ = ["plan"]


@numba.njit(**INLINE)
def _gelu(z: float, fast: Any) -> float:
    if fast is None:
        return exact_gelu(z)
    return fast_gelu(z)


@kernel
def _rows(queue: Any, A: Any, B: Any, C: Any, columns: int, rows_per_task: int, fast: Any) -> None:
    """fast is None for the exact form. The last row may be short."""
    widest_vectors()
    size = A.size
    target = destination(C, A, A)
    task = take(queue)
    while task >= 0:
        begin = task * rows_per_task * columns
        for first in range(begin, min(begin + rows_per_task * columns, size), columns):
            for column in range(min(columns, size - first)):
                store(target, first + column, _gelu(load(A, first + column) + load(B, column), fast))
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    rows, columns = prod(call.axes["rows"]), call.axes["columns"]
    folded = fold(rows, columns)
    rows_of_folded, width = -(-rows // folded), columns * folded
    step = rows_per_task(rows_of_folded)
    tasks = -(-rows_of_folded // step) if columns else 0
    nbytes = sum(tensor.nbytes for tensor in (*call.inputs.values(), *call.outputs.values()))
    fast = True if call.operator == "BiasFastGelu" else None
    over = ("A", "")
    compiled = _rows(
        QUEUE,
        *(argument_type(call, name, over) for name in ("A", "B", "C")),
        types.int64,
        types.int64,
        types.none if fast is None else types.boolean,
    )

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        A, B = read
        bias = B if folded == 1 else np.tile(B, folded)
        threads.run(compiled, tasks, nbytes, A, bias, *write, width, step, fast)

    return FlatPlan(call, kernel="forward_rows", outputs=("C",), launch=launch, over=over)
