"""Both GELU gradients on the CPU: one kernel over rows."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import team
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.functions import exact_gelu_gradient, fast_gelu_gradient
from gradkern.cpu.staging import FlatPlan
from gradkern.cpu.storage import array_type, load, store, zeros
from gradkern.cpu.sums import BLOCK, PARTIAL, RowSums, flush, fold, rows_per_task
from gradkern.cpu.team import QUEUE, take

__all__ = ["plan"]


@numba.njit(**INLINE)
def _gradient(z: float, fast: Any) -> float:
    if fast is None:
        return exact_gelu_gradient(z)
    return fast_gelu_gradient(z)


@kernel
def _rows(queue: Any, dY: Any, X: Any, B: Any, dX: Any, sums: Any, columns: int, rows_per_task: int, fast: Any) -> None:
    """dX and sums are None where not wanted, fast is None for the exact form. The last row may be short."""
    size = X.size
    task = take(queue)
    while task >= 0:
        if sums is not None:
            partial = task * columns
            sums[partial : partial + columns] = 0
            block = zeros(X, columns)
        begin = task * rows_per_task * columns
        end = min(begin + rows_per_task * columns, size)
        for first in range(begin, end, columns):
            for column in range(min(columns, end - first)):
                z = load(X, first + column) + load(B, column)
                gradient = load(dY, first + column) * _gradient(z, fast)
                if dX is not None:
                    store(dX, first + column, gradient)
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
    fast = True if call.operator == "BiasFastGeluGrad_dX" else None
    sums = RowSums(tasks * folded, columns, call.outputs["dB"].dtype) if "dB" in call.outputs else None
    compiled = _rows(
        QUEUE,
        *(array_type(call.inputs[name].dtype) for name in ("dY", "X", "B")),
        array_type(call.outputs["dX"].dtype) if "dX" in call.outputs else types.none,
        types.none if sums is None else PARTIAL,
        types.int64,
        types.int64,
        types.none if fast is None else types.boolean,
    )

    def launch(read: list[np.ndarray], write: list[np.ndarray | None]) -> None:
        dY, X, B = read
        dX, dB = write
        partial = None if sums is None else sums.partial()
        bias = B if folded == 1 else np.tile(B, folded)
        team.run(compiled, tasks, nbytes, dY, X, bias, dX, partial, width, step, fast)
        if sums is not None:
            sums.add(partial, dB)

    scratch = 0 if sums is None else sums.nbytes
    return FlatPlan(call, kernel="rows", outputs=("dX", "dB"), launch=launch, scratch=scratch)
