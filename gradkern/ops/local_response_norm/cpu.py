"""The gradient of local response normalization on the CPU: the terms of the windows' sums, and then dX."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import arithmetic, array_type, load, real, store, zeros
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.threads import QUEUE, take
from gradkern.ops.local_response_norm.windows import Windows


@numba.njit(**INLINE)
def _add_windows(
    sums: Any, array: Any, squared: Any, row: int, x2: int, sizes: Any, inner: int, before: int, behind: int
) -> None:
    """Of `inner` elements side by side the sums over their windows of the elements, or of their squares."""
    w0, w1, w2 = sizes
    x0, x1, outer = row // w1 % w0, row % w1, row // (w0 * w1)
    sums[:] = 0
    for y0 in range(max(x0 - before, 0), min(x0 + behind + 1, w0)):
        for y1 in range(max(x1 - before, 0), min(x1 + behind + 1, w1)):
            for y2 in range(max(x2 - before, 0), min(x2 + behind + 1, w2)):
                first = (((outer * w0 + y0) * w1 + y1) * w2 + y2) * inner
                for n in range(inner):
                    x = load(array, first + n)
                    store(sums, n, load(sums, n) + (x if squared is None else x * x))


@kernel
def _terms(
    queue: Any, X: Any, D: Any, own: Any, others: Any, sizes: Any, inner: int, before: int, behind: int, alpha: float,
    beta: float, bias: float,
) -> None:  # fmt: skip
    """own: D s^-beta; others: D X s^(-beta - 1). A task has one place along w0 and w1."""
    sums, a, b, power = zeros(X, inner), real(X, alpha), real(X, bias), real(X, -beta)
    task = take(queue)
    while task >= 0:
        for x2 in range(sizes[2]):
            _add_windows(sums, X, True, task, x2, sizes, inner, before, behind)
            first = (task * sizes[2] + x2) * inner
            for n in range(inner):
                s = b + a * load(sums, n)
                g = load(D, first + n) * s**power
                store(own, first + n, g)
                store(others, first + n, g / s * load(X, first + n))
        task = take(queue)


@kernel
def _gradient(
    queue: Any, X: Any, own: Any, others: Any, dX: Any, sizes: Any, inner: int, before: int, behind: int, factor: float
) -> None:
    sums, c = zeros(X, inner), real(X, factor)
    task = take(queue)
    while task >= 0:
        for x2 in range(sizes[2]):
            _add_windows(sums, others, None, task, x2, sizes, inner, before, behind)
            first = (task * sizes[2] + x2) * inner
            for n in range(inner):
                store(dX, first + n, load(own, first + n) - c * load(X, first + n) * load(sums, n))
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    X, windows, given = call.inputs["Input"], Windows.of(call.inputs["Input"], call.attributes), call.attributes
    names: tuple[str, ...] = ("Input", "InputGradient", "OutputGradient")
    kinds = [argument_type(call, name, None, windows.order) for name in names]
    compute = arithmetic(X.dtype)
    held, size = array_type(compute), types.UniTuple(types.int64, 3)
    alpha, beta, bias = given["Alpha"] / given["LocalSize"], given["Beta"], given["Bias"]
    terms = _terms(QUEUE, *kinds[:2], held, held, size, *(types.int64,) * 3, *(types.float64,) * 3)
    gradient = _gradient(QUEUE, kinds[0], held, held, kinds[2], size, *(types.int64,) * 3, types.float64)
    sizes, inner, before, behind = windows[2:]
    tasks = windows.outer * prod(sizes[:2])

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        Input, InputGradient = read
        own, others = np.empty(X.size, compute), np.empty(X.size, compute)
        what = Input, InputGradient, own, others, sizes, inner, before, behind, alpha, beta, bias
        threads.run(terms, tasks, 4 * X.nbytes, *what)
        # an element is in the windows of others on the other side
        arrays = Input, own, others, *write
        threads.run(gradient, tasks, 4 * X.nbytes, *arrays, sizes, inner, behind, before, 2 * alpha * beta)

    orders: dict[str, Any] = dict.fromkeys(names, windows.order)
    scratch = 2 * X.size * compute.itemsize
    return FlatPlan(call, kernel="windows", outputs=names[2:], launch=launch, orders=orders, scratch=scratch)
