"""The layer norms themselves on the CPU: one kernel over rows, for all of them."""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import AS_WRITTEN, INLINE, REORDERED, by_types, kernel, widest_vectors
from gradkern.cpu.element_types import destination, load, real, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.sums import SPAN, rows_per_task
from gradkern.cpu.threads import QUEUE, take
from gradkern.ops.layer_norm import NAMES

_LEAST, _MOST = 1e-30, 1e38
"""Sums in float32 within these have lost nothing below or above what the type holds; others are taken in float64."""


@by_types(**INLINE)
def _line(X: Any, skip: Any, columns: int) -> Any:
    """Room for the sums of a row, in the type of skip; none is needed where there is no skip."""

    def none(X: Any, skip: Any, columns: int) -> Any:
        return np.empty(0, X.dtype)

    def own(X: Any, skip: Any, columns: int) -> Any:
        return np.empty(columns, skip.dtype)

    return none if skip in (None, types.none) else own


@numba.njit(**INLINE)
def _element(X: Any, skip: Any, line: Any, first: int, column: int) -> float:
    """Of what is normalized: X, or the line of sums that stands for its row."""
    if skip is None:
        return load(X, first + column)
    return load(line, column)


@numba.njit(**AS_WRITTEN)
def _scaled(x: float, mu: float, r: float, scale: float) -> float:
    return (x - mu) * r * scale


@numba.njit(**REORDERED)
def _sum(X: Any, skip: Any, line: Any, first: int, columns: int, zero: float) -> float:
    """Of a row, in the type of `zero` by spans."""
    widest_vectors()
    total = 0.0
    for start in range(0, columns, SPAN):
        part = zero
        for column in range(start, min(start + SPAN, columns)):
            part += _element(X, skip, line, first, column)
        total += part
    return total


@numba.njit(**REORDERED)
def _moments(X: Any, skip: Any, line: Any, first: int, columns: int, mu: float, centred: Any) -> tuple[float, float]:
    """The sums of d = x - mu and of d^2 of a row, in the type of mu by spans; of d only where centred."""
    widest_vectors()
    total = squares = 0.0
    for start in range(0, columns, SPAN):
        part = square = mu - mu
        for column in range(start, min(start + SPAN, columns)):
            d = _element(X, skip, line, first, column) - mu
            if centred is not None:
                part += d
            square += d * d
        total += part
        squares += square
    return total, squares


@kernel
def _rows(
    queue: Any, X: Any, skip: Any, shift: Any, scale: Any, bias: Any, Y: Any, mean: Any, inv_std: Any, total: Any,
    epsilon: float, rows: int, columns: int, rows_per_task: int, centred: Any,
) -> None:  # fmt: skip
    """skip, shift, bias and outputs are None where there are none, scale and bias also where Y is not wanted, centred
    for a simplified norm: it has no mean.

    With skip, what is normalized is X + skip + shift, rounded to the type of skip; `total` takes it.
    """
    widest_vectors()
    target, total_target = destination(Y, X, skip), destination(total, X, skip)
    line = _line(X, skip, columns)
    task = take(queue)
    while task >= 0:
        for row in range(task * rows_per_task, min((task + 1) * rows_per_task, rows)):
            first = row * columns
            if skip is not None:
                for column in range(columns):
                    added = load(X, first + column)
                    if shift is not None:
                        added += load(shift, column)
                    added += load(skip, first + column)
                    store(line, column, added)
                    if total is not None:
                        store(total_target, first + column, added)
            mu = real(X, 0)
            if centred is not None:
                sum_ = _sum(X, skip, line, first, columns, real(X, 0))
                if not abs(sum_) <= _MOST:
                    sum_ = _sum(X, skip, line, first, columns, 0.0)
                mu = real(X, sum_ / columns)

            # what mu was rounded by is in the sum of d: mean = mu + sum d/columns
            apart, squares = _moments(X, skip, line, first, columns, mu, centred)
            if not _LEAST <= squares <= _MOST:
                apart, squares = _moments(X, skip, line, first, columns, np.float64(mu), centred)
            variance = squares / columns
            if centred is not None and math.isfinite(mu):
                variance = max(variance - (apart / columns) ** 2, 0.0)
                mu = real(X, mu + apart / columns)
            r = real(X, 1 / math.sqrt(variance + epsilon))

            if mean is not None:
                store(mean, row, mu)
            if inv_std is not None:
                store(inv_std, row, r)
            if Y is not None:
                for column in range(columns):
                    value = _scaled(_element(X, skip, line, first, column), mu, r, load(scale, column))
                    if bias is not None:
                        value += load(bias, column)
                    store(target, first + column, value)
        task = take(queue)


_INPUTS, _OUTPUTS = ("X", "skip", "shift", "scale", "bias"), ("Y", "mean", "inv_std", "sum")  # in the kernel's order


def plan(call: Call) -> FlatPlan:
    rows, width = prod(call.axes["rows"]), call.axes["columns"]
    columns: int = width if isinstance(width, int) else prod(width)
    step = rows_per_task(rows)
    nbytes = sum(tensor.nbytes for tensor in (*call.inputs.values(), *call.outputs.values()))
    centred = None if "Simplified" in call.operator else True
    names = {NAMES[name]: name for name in (*call.inputs, *call.outputs)}
    given_names = [NAMES[name] for name in call.inputs]
    over = (names["X"], names.get("skip", ""))
    unread = () if "Y" in names else ("scale", "bias")  # one kernel computes the statistics for all their types
    read_names = {key: "" if key in unread else names.get(key, "") for key in (*_INPUTS, *_OUTPUTS)}
    epsilon = call.attributes["epsilon"]
    compiled = _rows(
        QUEUE,
        *(argument_type(call, name, over) for name in read_names.values()),
        types.float64,
        *(types.int64,) * 3,
        types.boolean if centred else types.none,
    )

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        given = dict.fromkeys(_INPUTS) | dict(zip(given_names, read, strict=True)) | dict.fromkeys(unread)
        if columns:
            tasks = -(-rows // step)
            threads.run(compiled, tasks, nbytes, *given.values(), *write, epsilon, rows, columns, step, centred)
        else:  # the statistics of rows of nothing
            for each in write[1:3]:
                if each is not None:
                    each[:] = 0

    outputs = [names.get(key, key) for key in _OUTPUTS]
    return FlatPlan(call, kernel="forward_rows", outputs=outputs, launch=launch, over=over)
