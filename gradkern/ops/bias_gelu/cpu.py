"""Both GELUs and their gradients on the CPU: one kernel over rows."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel, widest_vectors
from gradkern.cpu.element_types import destination, load, store, zeros
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.gelu import exact_gelu, exact_gelu_gradient, fast_gelu, fast_gelu_gradient
from gradkern.cpu.sums import BLOCK, RowSums, flush, fold, rows_per_task
from gradkern.cpu.threads import QUEUE, take


@numba.njit(**INLINE)
def _gradient(z: float, fast: Any) -> float:
    if fast is None:
        return exact_gelu_gradient(z)
    return fast_gelu_gradient(z)


@numba.njit(**INLINE)
def _gelu(z: float, fast: Any) -> float:
    if fast is None:
        return exact_gelu(z)
    return fast_gelu(z)


@kernel
def _rows(queue: Any, dY: Any, X: Any, B: Any, dX: Any, sums: Any, columns: int, rows_per_task: int, fast: Any) -> None:
    """dX and sums are None where not wanted, fast is None for the exact form. The last row may be short. Without dY the
    output is GELU itself.
    """
    widest_vectors()
    size = X.size
    target = destination(dX, dY, X)
    task = take(queue)
    while task >= 0:
        partial = task * columns
        if sums is not None:
            sums[partial : partial + columns] = 0
        block = zeros(X, 0 if sums is None else columns)
        begin = task * rows_per_task * columns
        end = min(begin + rows_per_task * columns, size)
        for first in range(begin, end, columns):
            for column in range(min(columns, end - first)):
                z = load(X, first + column) + load(B, column)
                gradient = _gelu(z, fast) if dY is None else load(dY, first + column) * _gradient(z, fast)
                if dX is not None:
                    store(target, first + column, gradient)
                if sums is not None:
                    store(block, column, load(block, column) + gradient)
            if sums is not None and ((first - begin) // columns % BLOCK == BLOCK - 1 or first + columns >= end):
                flush(block, sums, partial)
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    rows, columns = prod(call.axes["rows"]), call.axes["columns"]
    folded = fold(rows, columns)
    rows_of_folded, width = -(-rows // folded), columns * folded
    step = rows_per_task(rows_of_folded)
    tasks = -(-rows_of_folded // step) if columns else 0
    nbytes = sum(tensor.nbytes for tensor in (*call.inputs.values(), *call.outputs.values()))
    fast, forward = True if "Fast" in call.operator else None, "A" in call.inputs
    sums = RowSums(tasks * folded, columns, [call.outputs["dB"].dtype if "dB" in call.outputs else None, None])
    over, arrays = (("", "A"), ("dY", "A", "B", "C")) if forward else (("dY", "X"), ("dY", "X", "B", "dX"))
    compiled = _rows(
        QUEUE,
        *(argument_type(call, name, over) for name in arrays),
        sums.types[0],
        types.int64,
        types.int64,
        types.none if fast is None else types.boolean,
    )

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        *dY, X, B = read
        output, dB = write
        bias = B if folded == 1 else np.tile(B, folded)
        partials = sums.partials()
        threads.run(compiled, tasks, nbytes, dY[0] if dY else None, X, bias, output, partials[0], width, step, fast)
        sums.add(partials, (dB, None))

    return FlatPlan(
        call,
        kernel="forward_rows" if forward else "rows",
        outputs=(arrays[-1], "dB"),
        launch=launch,
        over=over,
        scratch=sums.nbytes,
        repeatable=folded == 1,
    )
