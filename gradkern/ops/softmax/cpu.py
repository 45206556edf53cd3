"""The gradients of softmax on the CPU: one kernel for rows in memory, one for rows across it."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import destination, load, real, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.gelu import exp
from gradkern.cpu.sums import SPAN, rows_per_task
from gradkern.cpu.threads import QUEUE, take
from gradkern.ops.dropout import factors
from gradkern.strides import is_dense, memory_order

_WIDTH = 512  # rows side by side that one task takes


@numba.njit(**INLINE)
def _term(D: Any, Y: Any, log: Any) -> Any:
    return D if log is not None else D * Y


@numba.njit(**INLINE)
def _gradient(D: Any, Y: Any, total: Any, log: Any) -> Any:
    return D - exp(Y) * total if log is not None else Y * (D - total)


@numba.njit(**INLINE)
def _upstream(dY: Any, mask: Any, n: int, scale: Any) -> Any:
    if mask is not None:
        return load(dY, n) * scale if mask[n] else real(dY, 0)
    return load(dY, n)


@kernel
def _rows(
    queue: Any, dY: Any, Y: Any, mask: Any, dX: Any, rows: int, columns: int, rows_per_task: int, log: Any,
    factor: float,
) -> None:  # fmt: skip
    """log is None for softmax itself. With a mask, dY are what it has kept, times the factor."""
    target, scale = destination(dX, dY, Y), real(dY, factor)
    task = take(queue)
    while task >= 0:
        begin = task * rows_per_task
        for row in range(begin, min(begin + rows_per_task, rows)):
            first = row * columns
            total = 0.0
            for start in range(0, columns, SPAN):
                part = real(dY, 0)
                for column in range(start, min(start + SPAN, columns)):
                    part += _term(_upstream(dY, mask, first + column, scale), load(Y, first + column), log)
                total += part
            total = real(dY, total)
            for column in range(first, first + columns):
                D = _upstream(dY, mask, column, scale)
                store(target, column, _gradient(D, load(Y, column), total, log))
        task = take(queue)


@kernel
def _inner(queue: Any, dY: Any, Y: Any, dX: Any, columns: int, inner: int, log: Any) -> None:
    """Of matrices of columns x inner elements."""
    target = destination(dX, dY, Y)
    parts = (inner + _WIDTH - 1) // _WIDTH
    totals = np.empty(_WIDTH, np.float64)
    task = take(queue)
    while task >= 0:
        begin = task % parts * _WIDTH
        first = task // parts * columns * inner + begin
        width = min(_WIDTH, inner - begin)
        totals[:width] = 0
        for at in range(first, first + columns * inner, inner):
            for n in range(width):
                store(totals, n, load(totals, n) + _term(load(dY, at + n), load(Y, at + n), log))
        for at in range(first, first + columns * inner, inner):
            for n in range(width):
                total = real(dY, load(totals, n))
                store(target, at + n, _gradient(load(dY, at + n), load(Y, at + n), total, log))
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    masked = "mask" in call.inputs
    names = tuple(name for name in call.inputs if name != "mask")
    (gradient,), tensors = call.outputs, (*call.inputs.values(), *call.outputs.values())
    before, sizes = len(call.axes["rows"]), call.axes["columns"]
    single = call.operator.endswith("_13")
    order = memory_order(tensors[1]) if single else None  # axes that are no part of a row may lie in any order
    if order is None or not all(is_dense(each, order) for each in tensors):
        order = tuple(range(len(tensors[0].shape)))
    shape = [tensors[0].shape[axis] for axis in order]
    place = order.index(before) if single else before
    columns = shape[place] if single else prod(sizes)
    rows, inner = prod(shape[:place]), prod(shape[place + 1 :]) if single else 1
    over = (names[0], names[1])
    orders = dict.fromkeys((*call.inputs, gradient), order)
    log = True if call.operator.startswith("Log") else None
    arrays = [argument_type(call, name, over, order) for name in (*names, gradient)]
    flag = types.none if log is None else types.boolean
    nbytes = sum(each.nbytes for each in tensors)
    if inner == 1:
        step = rows_per_task(rows)
        tasks, numbers = -(-rows // step), (rows, columns, step)
        mask = argument_type(call, "mask")
        compiled = _rows(QUEUE, *arrays[:2], mask, arrays[2], *(types.int64,) * 3, flag, types.float64)
    else:
        tasks, numbers = rows * -(-inner // _WIDTH), (columns, inner)
        compiled = _inner(QUEUE, *arrays, *(types.int64,) * 2, flag)

    def launch(read: list[Any], write: list[Any]) -> None:
        if inner != 1:
            threads.run(compiled, tasks, nbytes, *read, *write, *numbers, log)
        elif not masked:
            threads.run(compiled, tasks, nbytes, *read, None, *write, *numbers, log, 1.0)
        else:
            dY, kept, Y, *scalars = read
            (factor,) = factors({**call.attributes, **dict(zip(call.scalars, scalars, strict=True))})
            threads.run(compiled, tasks, nbytes, dY, Y, kept, *write, *numbers, log, factor)

    return FlatPlan(
        call,
        kernel="rows" if inner == 1 else "inner",
        outputs=(gradient,),
        launch=launch,
        over=over,
        orders=orders,
        repeatable=not call.scalars,
    )
