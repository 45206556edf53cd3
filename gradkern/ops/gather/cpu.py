"""The gradients of gathers on the CPU: keys and their order in NumPy, sums of rows in a kernel. FlattenAndUnpad is all
NumPy's.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import array_type, load, real, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import DataError
from gradkern.ops.gather.keys import Gather, gather_of

_WIDTH = 512  # columns side by side that one task takes
_ELEMENTS = 1 << 16  # of dX, of one task
_INTS = array_type(np.dtype(np.int64))


@kernel
def _sums(
    queue: Any, dY: Any, dX: Any, keys: Any, order: Any, first: Any,
    count: int, rows: int, columns: int, rows_per_task: int, accumulate: Any,
) -> None:  # fmt: skip
    """The positions whose keys are rows of task t begin at first[t]. accumulate: None, or true."""
    parts, chunks = (columns + _WIDTH - 1) // _WIDTH, first.size - 1
    totals = np.empty(_WIDTH, np.float64)
    task = take(queue)
    while task >= 0:
        begin = task % parts * _WIDTH
        width = min(_WIDTH, columns - begin)
        chunk, array = task // parts % chunks, task // parts // chunks
        at, end = first[chunk], first[chunk + 1]
        for row in range(chunk * rows_per_task, min((chunk + 1) * rows_per_task, rows)):
            to = (array * rows + row) * columns + begin
            if at < end and keys[at] == row:
                for n in range(width):
                    totals[n] = 0.0 if accumulate is None else load(dX, to + n)
                while at < end and keys[at] == row:
                    source = (array * count + order[at]) * columns + begin
                    for n in range(width):
                        store(totals, n, load(totals, n) + load(dY, source + n))
                    at += 1
                for n in range(width):
                    store(dX, to + n, real(dY, load(totals, n)))
            elif accumulate is None:
                for n in range(width):
                    store(dX, to + n, real(dY, 0))
        task = take(queue)


def _keys(gather: Gather, indices: np.ndarray) -> np.ndarray:
    """The row of each element; `rows` for the dropped one. Raises DataError for an index out of range."""
    bounds = np.array(gather.bounds, np.int64)
    index = indices.reshape(gather.count, len(bounds)).astype(np.int64)
    outside = (index < -bounds) | (index >= bounds)
    if outside.any():
        place, number = np.argwhere(outside)[0]
        raise DataError(
            f"input indices has {outside.sum()} numbers out of range, the first {index[place, number]} at {place}; "
            f"expected {-bounds[number]} to {bounds[number] - 1}"
        )
    places = np.zeros(1, np.int64)
    for size, stride in zip(gather.sizes, gather.strides, strict=True):
        places = (places[:, None] + np.arange(size) * stride).reshape(-1)
    keys = np.where(index < 0, index + bounds, index) @ np.array(gather.steps, np.int64) + places
    return np.where(keys == gather.dropped, gather.rows, keys)


def plan(call: Call) -> FlatPlan:
    if call.operator == "FlattenAndUnpad":
        return _kept_rows(call)
    gather, names = gather_of(call), tuple(call.inputs)
    indices, source = names.index("indices"), names.index(gather.source)
    ((output, target),) = call.outputs.items()
    accumulate = True if call.in_place else None
    flag = types.none if accumulate is None else types.boolean
    arrays = argument_type(call, gather.source), argument_type(call, output)
    compiled = _sums(QUEUE, *arrays, _INTS, _INTS, _INTS, *(types.int64,) * 4, flag)
    step = max(1, _ELEMENTS // max(1, min(gather.columns, _WIDTH)))
    chunks = -(-gather.rows // step)
    tasks = gather.arrays * chunks * -(-gather.columns // _WIDTH)
    nbytes = call.inputs[gather.source].nbytes + target.nbytes

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        if accumulate and write[0].ctypes.data != read[-1].ctypes.data:  # the output has gaps, and this is a copy
            write[0][:] = read[-1]
        keys = _keys(gather, read[indices])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        first = np.searchsorted(keys, np.minimum(np.arange(chunks + 1) * step, gather.rows))
        numbers = gather.count, gather.rows, gather.columns, step, accumulate
        threads.run(compiled, tasks, nbytes, read[source], write[0], keys, order, first, *numbers)

    return FlatPlan(call, kernel="sums", outputs=(output,), launch=launch)


def _kept_rows(call: Call) -> FlatPlan:
    rows, columns = prod((call.axes["d0"], call.axes["d1"])), prod(call.axes["after"])
    count = call.axes["total"]

    def launch(read: list[Any], write: list[Any]) -> None:
        data, indices = read
        outside = np.flatnonzero((indices < 0) | (indices >= rows))
        if outside.size:
            raise DataError(
                f"input indices has {outside.size} numbers out of range, the first {indices[outside[0]]} at "
                f"{outside[0]}; expected 0 to {rows - 1}"
            )
        if count and columns:
            np.take(data.reshape(rows, columns), indices, 0, write[0].reshape(count, columns), "clip")

    return FlatPlan(call, kernel="rows", outputs=("output",), launch=launch)
