"""Rotary embeddings on the CPU: one loop over the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import destination, load, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.sums import rows_per_task
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import DataError


@kernel
def _rows(
    queue: Any, X: Any, cos: Any, sin: Any, Y: Any, places: Any, shape: Any, step: int, rows_per_task: int,
    sign: float,
) -> None:  # fmt: skip
    """places: the line of the cache for each b, s. shape: heads, sequence, elements, pairs, rows. step: between the
    first elements, 2 where they are interleaved.
    """
    target = destination(Y, X, X)
    heads, sequence, elements, half, rows = shape[0], shape[1], shape[2], shape[3], shape[4]
    apart = half if step == 1 else 1
    task = take(queue)
    while task >= 0:
        begin = task * rows_per_task
        for row in range(begin, min(begin + rows_per_task, rows)):
            line = places[row // (heads * sequence) * sequence + row % sequence] * half
            first = row * elements
            for k in range(half):
                at = first + k * step
                x1, x2 = load(X, at), load(X, at + apart)
                c, s = load(cos, line + k), load(sin, line + k) * sign
                store(target, at, x1 * c - x2 * s)
                store(target, at + apart, x2 * c + x1 * s)
            for at in range(first + 2 * half, first + elements):
                store(target, at, load(X, at))
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    """The plan of RotaryEmbedding or of its gradient."""
    (data, cos, sin, *_), (result,) = call.inputs, call.outputs
    axes = call.axes
    batch, heads, sequence, elements, half = (axes[name] for name in ("B", "N", "S", "D", "half"))
    rows = batch * heads * sequence
    shape = np.array([heads, sequence, elements, half, rows])
    step, each = 2 if call.attributes["interleaved"] else 1, rows_per_task(rows)
    sign = -1.0 if call.operator.endswith("Grad") else 1.0
    over = (data, data)
    arrays = [argument_type(call, name, over) for name in (data, cos, sin, result)]
    numbers = types.int64[::1]
    compiled = _rows(QUEUE, *arrays, numbers, numbers, types.int64, types.int64, types.float64)
    nbytes = call.inputs[data].nbytes + call.outputs[result].nbytes
    positions, indexed = axes["cached"][0], "position_ids" in call.inputs
    in_order: Any = np.arange(int(batch * sequence), dtype=np.int64)

    def launch(read: list[Any], write: list[Any]) -> None:
        places = in_order
        if indexed:
            places = read[3]
            outside = (places < 0) | (places >= positions)
            if outside.any():
                raise DataError(
                    f"input position_ids has {outside.sum()} positions outside of the cache, the first "
                    f"{places[outside.argmax()]}; expected 0 to {positions - 1}"
                )
        threads.run(compiled, -(-rows // each), nbytes, *read[:3], *write, places, shape, step, each, sign)

    return FlatPlan(call, kernel="rows", outputs=(result,), launch=launch, over=over)
