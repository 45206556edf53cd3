"""Max pooling and its gradient on the CPU."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import arithmetic, array_type, load, store, zeros
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.separable import spatial_order
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import DataError
from gradkern.ops.pooling.windows import PoolWindows

__all__ = ["plan"]

_NUMBERS = array_type(np.dtype(np.int64))
_CHANNELS = 16  # of one task, where they are last in memory


@numba.njit(**INLINE)
def _input_of(index: int, output: int, window: Any, sizes: Any, local: Any) -> int:
    """The place in a plane of X that an index is; -1 if it is none of the window's. local: it is one of the window's
    elements, in their order, and not one of the plane's.
    """
    kernel, outs, strides, dilations, begins = window
    x0, x1, x2 = index // (sizes[1] * sizes[2]), index // sizes[2] % sizes[1], index % sizes[2]
    if local is not None:
        x0, x1, x2 = index // (kernel[1] * kernel[2]), index // kernel[2] % kernel[1], index % kernel[2]
    o0, o1, o2 = output // (outs[1] * outs[2]), output // outs[2] % outs[1], output % outs[2]
    place = 0
    for axis, x, o in ((0, x0, o0), (1, x1, o1), (2, x2, o2)):
        first = o * strides[axis] - begins[axis]
        if local is not None:
            x = first + x * dilations[axis]
        t = x - first
        if t < 0 or t % dilations[axis] or t // dilations[axis] >= kernel[axis] or x < 0 or x >= sizes[axis]:
            return -1
        place = place * sizes[axis] + x
    return place


@numba.njit(**INLINE)
def _is_empty(output: int, window: Any, sizes: Any) -> bool:
    """Whether a window's dilations pass over all of the input."""
    kernel, outs, strides, dilations, begins = window
    o0, o1, o2 = output // (outs[1] * outs[2]), output // outs[2] % outs[1], output % outs[2]
    for axis, o in ((0, o0), (1, o1), (2, o2)):
        first = o * strides[axis] - begins[axis]
        t = (max(-first, 0) + dilations[axis] - 1) // dilations[axis]
        if t >= kernel[axis] or first + t * dilations[axis] >= sizes[axis]:
            return True
    return False


@kernel
def _check(
    queue: Any, Indices: Any, bad: Any, planes: int, inner: int, outputs: int, numbers: Any, base: int, local: Any
) -> None:
    """Leaves in `bad` by task how many indices are none of their windows, and the place of the first."""
    window = numbers[0:3], numbers[3:6], numbers[6:9], numbers[9:12], numbers[12:15]
    sizes = numbers[15:18]
    task = take(queue)
    while task >= 0:
        for o in range(outputs):
            for c in range(inner):
                at = (task * outputs + o) * inner + c
                index = Indices[at] - (task * inner + c) * base
                if _input_of(index, o, window, sizes, local) < 0 and not _is_empty(o, window, sizes):
                    if bad[2 * task] == 0:
                        bad[2 * task + 1] = at
                    bad[2 * task] += 1
        task = take(queue)


@kernel
def _gradient(
    queue: Any, dY: Any, Indices: Any, dX: Any, inner: int, outputs: int, inputs: int, numbers: Any, base: int,
    local: Any,
) -> None:  # fmt: skip
    """A task has a plane, or some channels of a sample."""
    window = numbers[0:3], numbers[3:6], numbers[6:9], numbers[9:12], numbers[12:15]
    sizes = numbers[15:18]
    width = min(inner, _CHANNELS)
    parts = (inner + width - 1) // width
    sums = zeros(dY, inputs * width)
    task = take(queue)
    while task >= 0:
        image, begin = task // parts, task % parts * width
        count = min(width, inner - begin)
        sums[:] = 0
        for o in range(outputs):
            for c in range(count):
                at = (image * outputs + o) * inner + begin + c
                index = Indices[at] - (image * inner + begin + c) * base
                place = _input_of(index, o, window, sizes, local) * width + c
                if place >= 0:
                    store(sums, place, load(sums, place) + load(dY, at))
        for x in range(inputs):
            for c in range(count):
                store(dX, (image * inputs + x) * inner + begin + c, load(sums, x * width + c))
        task = take(queue)


@kernel
def _forward(
    queue: Any, X: Any, Y: Any, Indices: Any, inner: int, outputs: int, inputs: int, numbers: Any, base: int,
    local: Any,
) -> None:  # fmt: skip
    """A task has a plane, or a sample whose channels are last."""
    kernel, outs, strides = numbers[0:3], numbers[3:6], numbers[6:9]
    dilations, begins, sizes = numbers[9:12], numbers[12:15], numbers[15:18]
    most, found = zeros(X, inner), np.zeros(inner, np.int64)
    task = take(queue)
    while task >= 0:
        for o in range(outputs):
            o0, o1, o2 = o // (outs[1] * outs[2]), o // outs[2] % outs[1], o % outs[2]
            most[:] = -np.inf
            found[:] = -1
            for t0 in range(kernel[0]):
                x0 = o0 * strides[0] - begins[0] + t0 * dilations[0]
                if x0 < 0 or x0 >= sizes[0]:
                    continue
                for t1 in range(kernel[1]):
                    x1 = o1 * strides[1] - begins[1] + t1 * dilations[1]
                    if x1 < 0 or x1 >= sizes[1]:
                        continue
                    for t2 in range(kernel[2]):
                        x2 = o2 * strides[2] - begins[2] + t2 * dilations[2]
                        if x2 < 0 or x2 >= sizes[2]:
                            continue
                        place = (x0 * sizes[1] + x1) * sizes[2] + x2
                        index = place if local is None else (t0 * kernel[1] + t1) * kernel[2] + t2
                        first = (task * inputs + place) * inner
                        for c in range(inner):
                            x = load(X, first + c)
                            if found[c] < 0 or x > load(most, c) or (x != x and load(most, c) == load(most, c)):
                                store(most, c, x)
                                found[c] = index
            for c in range(inner):
                at = (task * outputs + o) * inner + c
                if Y is not None:
                    store(Y, at, load(most, c))
                if Indices is not None:
                    Indices[at] = found[c] + (task * inner + c) * base
        task = take(queue)


def plan(call: Call) -> FlatPlan:
    """The plan of MaxPool or of MaxPoolGrad."""
    gradient = call.operator == "MaxPoolGrad"
    x = call.outputs["dX"] if gradient else call.inputs["X"]
    tensors = {**call.inputs, **call.outputs}
    order = spatial_order((x, *tensors.values()))
    windows = PoolWindows.of(call)
    last = order[-1] == 1
    images, inner = (x.shape[0], x.shape[1]) if last else (prod(x.shape[:2]), 1)
    outputs, inputs = prod(windows.outputs), prod(windows.inputs)
    names: list[str] = ["dY", "Indices", "dX"] if gradient else ["X", "Y", "Indices"]
    indices = tensors.get("Indices")
    local = True if indices is not None and indices.dtype == np.uint8 else None
    base = inputs if local is None and call.attributes["index_base"] == "tensor" else 0
    numbers = np.array(windows.numbers, np.int64)
    arrays = [argument_type(call, name, None, order) for name in names]
    flag = types.none if local is None else types.boolean
    common = (_NUMBERS, types.int64, flag)
    sizes, body = (types.int64,) * 3, _gradient if gradient else _forward
    compiled = body(QUEUE, *arrays, *sizes, *common)
    nbytes = sum(each.nbytes for each in tensors.values())
    checked = _check(QUEUE, arrays[1], _NUMBERS, *sizes, *common) if gradient else None
    tasks = images * -(-inner // _CHANNELS) if gradient else images

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        if checked is not None:
            bad = np.zeros(2 * images, np.int64)
            threads.run(checked, images, nbytes, read[1], bad, images, inner, outputs, numbers, base, local)
            if bad[::2].any():
                raise DataError(_said(read[1], bad, windows))
        threads.run(compiled, tasks, nbytes, *read, *write, inner, outputs, inputs, numbers, base, local)

    scratch = inputs * min(inner, _CHANNELS) * arithmetic(x.dtype).itemsize if gradient else 12 * inner
    orders: dict[str, tuple[int, ...] | None] = dict.fromkeys(names, order)
    written = ("dX",) if gradient else ("Y", "Indices")
    kernel_name = "gradient" if gradient else "forward"
    return FlatPlan(call, kernel=kernel_name, outputs=written, launch=launch, orders=orders, scratch=scratch)


def _said(indices: np.ndarray, bad: np.ndarray, windows: PoolWindows) -> str:
    count, where = int(bad[::2].sum()), int(bad[1::2][bad[::2] > 0][0])
    return (
        f"input Indices has {count} that are no element of their window, the first {indices[where]}; "
        f"expected indices of a max pool with kernel_shape {windows.kernel} of an input of {windows.inputs}"
    )
