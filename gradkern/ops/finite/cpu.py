"""Whether elements are finite, and the norm of all, on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import load, real
from gradkern.cpu.elementwise import elementwise_kernel, elementwise_plan
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.threads import QUEUE, take
from gradkern.strides import is_dense, memory_order

_SPAN = 1 << 16  # elements of one task


@numba.njit(**INLINE)
def _finite(x: Any, _1: Any, _2: Any, r: Any, one: Any) -> Any:
    return (one if abs(x) < math.inf else one - one), one, one


_ELEMENTS = elementwise_kernel(_finite)


@kernel
def _parts(queue: Any, X: Any, parts: Any, squares: Any) -> None:
    """Of each task's elements the sum of squares; without `squares`, how many are not finite."""
    task = take(queue)
    while task >= 0:
        total = 0.0
        for n in range(task * _SPAN, min((task + 1) * _SPAN, X.size)):
            x = real(parts, load(X, n))
            if squares is not None:
                total += x * x
            else:
                total += 0.0 if abs(x) < math.inf else 1.0
        parts[task] = total
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    (output,) = call.outputs
    if call.operator == "IsFinite":
        return elementwise_plan(call, _ELEMENTS, tuple(call.inputs), (output,))
    squares, kind = True if call.operator == "ReduceAllL2" else None, call.outputs[output].dtype
    orders = {name: memory_order(each) for name, each in call.inputs.items()}
    orders = {name: order if is_dense(call.inputs[name], order) else None for name, order in orders.items()}
    flag = types.none if squares is None else types.boolean
    compiled = _parts(QUEUE, argument_type(call, next(iter(call.inputs))), types.float64[::1], flag)

    def launch(read: list[Any], write: list[Any]) -> None:
        total = 0.0
        for array in read:
            tasks = -(-array.size // _SPAN)
            parts = np.zeros(tasks)
            threads.run(compiled, tasks, array.nbytes, array, parts, squares)
            total += parts.sum()
        with np.errstate(over="ignore"):
            found = np.asarray(np.sqrt(total) if squares else total == 0, kind)
        write[0][:] = found.reshape(1).view(write[0].dtype)

    return FlatPlan(call, kernel="totals", outputs=(output,), launch=launch, orders=orders)
