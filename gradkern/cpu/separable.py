"""Gradients of linear maps along spatial axes, such as pools and resizing, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call, Tensor
from gradkern.cpu import threads
from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import arithmetic, array_type, load, real, store, zeros
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.threads import QUEUE, take
from gradkern.strides import channels_last

_INDICES = array_type(np.dtype(np.int64))
_ELEMENTS = 1 << 13  # of one task, about


def spatial_order(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The order of memory to compute arrays of N, C and spatial axes in: channels first or last."""
    rank = len(tensors[0].shape)
    last = next((each for each in map(channels_last, tensors) if each is not None), False)
    return (0, *range(2, rank), 1) if last else tuple(range(rank))


@kernel
def _lines(
    queue: Any, dY: Any, dX: Any, lines: int, lines_per_task: int, sizes: Any, outs: Any, inner: int,
    starts0: Any, outputs0: Any, weights0: Any, starts1: Any, outputs1: Any, weights1: Any,
    starts2: Any, outputs2: Any, weights2: Any,
) -> None:  # fmt: skip
    """A line is the last spatial axis of dX, with `inner` channels to each element: first what dY has along the other
    axes is added up, then the elements of that line.
    """
    wide = outs[2] * inner
    sums, element = zeros(dY, wide), zeros(dY, inner)
    task = take(queue)
    while task >= 0:
        for line in range(task * lines_per_task, min((task + 1) * lines_per_task, lines)):
            x1, x0 = line % sizes[1], line // sizes[1] % sizes[0]
            plane = line // (sizes[0] * sizes[1]) * outs[0]
            sums[:] = 0
            for n0 in range(starts0[x0], starts0[x0 + 1]):
                for n1 in range(starts1[x1], starts1[x1 + 1]):
                    first = ((plane + outputs0[n0]) * outs[1] + outputs1[n1]) * wide
                    weight = real(dY, weights0[n0] * weights1[n1])
                    for j in range(wide):
                        store(sums, j, load(sums, j) + weight * load(dY, first + j))
            for x2 in range(sizes[2]):
                if inner == 1:  # in a register
                    total = real(dY, 0.0)
                    for n2 in range(starts2[x2], starts2[x2 + 1]):
                        total += real(dY, weights2[n2]) * load(sums, outputs2[n2])
                    store(dX, line * sizes[2] + x2, total)
                    continue
                element[:] = 0
                for n2 in range(starts2[x2], starts2[x2 + 1]):
                    first, weight = outputs2[n2] * inner, real(dY, weights2[n2])
                    for c in range(inner):
                        store(element, c, load(element, c) + weight * load(sums, first + c))
                for c in range(inner):
                    store(dX, (line * sizes[2] + x2) * inner + c, load(element, c))
        task = take(queue)


def separable_plan(call: Call, tables: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> FlatPlan:
    """The plan of the gradient dX of an input from dY, both N, C and one to three spatial axes.

    tables  of each spatial axis, by element of dX: where its terms begin, and their elements of dY and weights
    """
    dY, dX = call.inputs["dY"], call.outputs["dX"]
    order = spatial_order((dX, dY))
    ones = [(np.array((0, 1)), np.zeros(1, np.int64), np.ones(1))] * (3 - len(tables))
    flat = [np.ascontiguousarray(each) for table in (*ones, *tables) for each in table]
    sizes, outs = (np.array((*(1,) * len(ones), *each.shape[2:])) for each in (dX, dY))
    last = order[-1] == 1
    inner, planes = (dX.shape[1], dX.shape[0]) if last else (1, prod(dX.shape[:2]))
    lines = planes * int(sizes[0] * sizes[1])
    per_task = max(1, _ELEMENTS // max(1, int(sizes[2]) * inner))
    tasks, nbytes = -(-lines // per_task), dY.nbytes + dX.nbytes
    table_types = [array_type(each.dtype) for each in flat]
    arrays = [argument_type(call, name, None, order) for name in ("dY", "dX")]
    compiled = _lines(QUEUE, *arrays, *(types.int64,) * 2, _INDICES, _INDICES, types.int64, *table_types)
    place = list(call.inputs).index("dY")

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        threads.run(compiled, tasks, nbytes, read[place], *write, lines, per_task, sizes, outs, inner, *flat)

    orders = {"dY": order, "dX": order}
    scratch = (int(outs[2]) + 1) * inner * arithmetic(dY.dtype).itemsize
    return FlatPlan(
        call, kernel="lines", outputs=("dX",), launch=launch, orders=orders, scratch=scratch,
        repeatable=True, constants=(sizes, outs, *flat),
    )  # fmt: skip
