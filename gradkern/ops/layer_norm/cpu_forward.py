"""The layer norms themselves on the CPU: one kernel over rows, for both of them."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import AS_WRITTEN, kernel
from gradkern.cpu.element_types import destination, load, real, store, summand
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.sums import SPAN, rows_per_task
from gradkern.cpu.threads import QUEUE, take

__all__ = ["plan"]


@numba.njit(**AS_WRITTEN)
def _scaled(x: float, mu: float, r: float, scale: float) -> float:
    return (x - mu) * r * scale


@kernel
def _rows(
    queue: Any,
    X: Any,
    scale: Any,
    bias: Any,
    Y: Any,
    mean: Any,
    inv_std: Any,
    epsilon: float,
    rows: int,
    columns: int,
    rows_per_task: int,
    centred: Any,
) -> None:
    """bias and outputs are None where there are none; centred is None for the simplified norm, which has no mean."""
    target = destination(Y, X, X)
    task = take(queue)
    while task >= 0:
        for row in range(task * rows_per_task, min((task + 1) * rows_per_task, rows)):
            first = row * columns
            mu = real(X, 0)
            if centred is not None:
                total = 0.0
                for start in range(first, first + columns, SPAN):
                    part = summand(X, None, 0)
                    for at in range(start, min(start + SPAN, first + columns)):
                        part += load(X, at)
                    total += part
                mu = real(X, total / columns)

            total = 0.0
            for start in range(first, first + columns, SPAN):
                part = summand(X, None, 0)
                for at in range(start, min(start + SPAN, first + columns)):
                    d = load(X, at) - mu
                    part += d * d
                total += part
            r = real(X, 1 / math.sqrt(total / columns + epsilon))

            if mean is not None:
                store(mean, row, mu)
            if inv_std is not None:
                store(inv_std, row, r)
            if Y is not None:
                for column in range(columns):
                    value = _scaled(load(X, first + column), mu, r, load(scale, column))
                    if bias is not None:
                        value += load(bias, column)
                    store(target, first + column, value)
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    rows, columns = prod(call.axes["rows"]), prod(call.axes["columns"])
    step = rows_per_task(rows)
    nbytes = sum(tensor.nbytes for tensor in (*call.inputs.values(), *call.outputs.values()))
    centred = True if call.operator == "LayerNormalization" else None
    outputs = ("Y", "Mean", "InvStdDev") if centred else ("Y", "Mean", "inv_std_var")
    over = ("X", "X")
    epsilon = call.attributes["epsilon"]
    compiled = _rows(
        QUEUE,
        *(argument_type(call, name, over) for name in ("X", "Scale" if centred else "scale", "B", *outputs)),
        types.float64,
        *(types.int64,) * 3,
        types.boolean if centred else types.none,
    )

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        X, scale, *shift = read
        bias = shift[0] if shift else None
        if columns:
            tasks = -(-rows // step)
            threads.run(compiled, tasks, nbytes, X, scale, bias, *write, epsilon, rows, columns, step, centred)
        else:  # the statistics of rows of nothing
            for each in write[1:]:
                if each is not None:
                    each[:] = 0

    return FlatPlan(call, kernel="forward_rows", outputs=outputs, launch=launch, over=over)
