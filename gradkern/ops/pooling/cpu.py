"""Max pooling and the gradients of pools on the CPU."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call, Plan
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import arithmetic, array_type, load, store, zeros
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.separable import separable_plan, spatial_order
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import DataError
from gradkern.kernels.separable.axis_map import transposed
from gradkern.ops.pooling.windows import PoolWindows, average, axis_maps, maximum
from gradkern.strides import channels_last

_NUMBERS = array_type(np.dtype(np.int64))
_CHANNELS = 16  # of one task, where they are last in memory


@numba.njit(**INLINE)
def _axes(numbers: Any) -> Any:
    """Their six triples, as tuples, as no store can change these."""
    n = numbers
    return (
        (n[0], n[1], n[2]), (n[3], n[4], n[5]), (n[6], n[7], n[8]),
        (n[9], n[10], n[11]), (n[12], n[13], n[14]), (n[15], n[16], n[17]),
    )  # fmt: skip


@numba.njit(**INLINE)
def _over(number: int, inverse: float) -> int:
    """number // divisor for 0 <= number < 2**51 and inverse = 1 / divisor: no error reaches half of the inverse."""
    return int((number + 0.5) * inverse)


@numba.njit(**INLINE)
def _split(index: int, extents: Any, inverses: Any) -> Any:
    """Its three coordinates, in row-major order."""
    x0 = _over(index, inverses[0])
    rest = index - x0 * (extents[1] * extents[2])
    x1 = _over(rest, inverses[1])
    return x0, x1, rest - x1 * extents[2]


@numba.njit(**INLINE)
def _holds(index: int, firsts: Any, kernel: Any, sizes: Any, dilations: Any, inverses: Any, local: Any) -> bool:
    """Whether the window that begins at `firsts` has this index; without a branch, so that loops are vectorized.
    local: it is one of the window's elements, in their order, and not one of the plane's.
    """
    found = index >= 0
    for axis, x in enumerate(_split(index, sizes if local is None else kernel, inverses)):
        if local is None:
            t = x - firsts[axis]
            tap = _over(t, inverses[2 + axis])
            found &= (t >= 0) & (tap < kernel[axis]) & (tap * dilations[axis] == t) & (x < sizes[axis])
        else:
            place = firsts[axis] + x * dilations[axis]
            found &= (x < kernel[axis]) & (place >= 0) & (place < sizes[axis])
    return found


@numba.njit(**INLINE)
def _is_empty(firsts: Any, kernel: Any, sizes: Any, dilations: Any) -> bool:
    """Whether a window's dilations pass over all of the input."""
    for axis, first in ((0, firsts[0]), (1, firsts[1]), (2, firsts[2])):
        t = (max(-first, 0) + dilations[axis] - 1) // dilations[axis]
        if t >= kernel[axis] or first + t * dilations[axis] >= sizes[axis]:
            return True
    return False


@kernel
def _check(
    queue: Any, Indices: Any, bad: Any, inner: int, numbers: Any, divisors: Any, base: int, local: Any, last: Any
) -> None:
    """Leaves in `bad` by task how many indices are none of their windows, and the place of the first. A window without
    an element has the index -1: in a byte that of an element.
    """
    inverses = 1 / divisors[0], 1 / divisors[1], 1 / divisors[2], 1 / divisors[3], 1 / divisors[4]
    kernel, outs, strides, dilations, begins, sizes = _axes(numbers)
    lanes, columns, step = (inner, outs[2], 0) if last is not None else (outs[2], 1, strides[2])
    task = take(queue)
    while task >= 0:
        at = task * (outs[0] * outs[1] * outs[2]) * inner
        plane = task * inner * base
        for line in range(outs[0] * outs[1] * columns):
            first0 = line // (outs[1] * columns) * strides[0] - begins[0]
            first1 = line // columns % outs[1] * strides[1] - begins[1]
            first2 = line % columns * strides[2] - begins[2]
            wrong = 0
            for c in range(lanes):
                firsts = first0, first1, first2 + c * step
                index: Any = np.int64(Indices[at + c]) - (plane if last is None else plane + c * base)
                wrong += not _holds(index, firsts, kernel, sizes, dilations, inverses, local)
            if wrong > 0:
                for c in range(lanes):
                    firsts = first0, first1, first2 + c * step
                    index: Any = np.int64(Indices[at + c]) - (plane if last is None else plane + c * base)
                    if _holds(index, firsts, kernel, sizes, dilations, inverses, local):
                        continue
                    if (index == -1 or local is not None) and _is_empty(firsts, kernel, sizes, dilations):
                        continue
                    if bad[2 * task] == 0:
                        bad[2 * task + 1] = at + c
                    bad[2 * task] += 1
            at += lanes
        task = take(queue)


@kernel
def _gradient(
    queue: Any, dY: Any, Indices: Any, dX: Any, inner: int, numbers: Any, divisors: Any, base: int, local: Any
) -> None:
    """A task has a plane, or some channels of a sample. The indices are checked."""
    inverses = 1 / divisors[0], 1 / divisors[1], 1 / divisors[2], 1 / divisors[3], 1 / divisors[4]
    kernel, outs, strides, dilations, begins, sizes = _axes(numbers)
    inputs = sizes[0] * sizes[1] * sizes[2]
    width = min(inner, _CHANNELS)
    parts = (inner + width - 1) // width
    sums = zeros(dY, inputs * width)
    task = take(queue)
    while task >= 0:
        image, begin = task // parts, task % parts * width
        count = min(width, inner - begin)
        sums[:] = 0
        outputs = outs[0] * outs[1] * outs[2]
        for o in range(outputs):
            first = (image * outputs + o) * inner + begin
            for c in range(count):
                place: Any = np.int64(Indices[first + c])
                if local is None:
                    place -= (image * inner + begin + c) * base
                else:
                    t0, t1, t2 = _split(place, kernel, inverses)
                    x0 = o // (outs[1] * outs[2]) * strides[0] - begins[0] + t0 * dilations[0]
                    x1 = o // outs[2] % outs[1] * strides[1] - begins[1] + t1 * dilations[1]
                    x2 = o % outs[2] * strides[2] - begins[2] + t2 * dilations[2]
                    inside = (0 <= x0 < sizes[0]) and (0 <= x1 < sizes[1]) and (0 <= x2 < sizes[2])
                    place = (x0 * sizes[1] + x1) * sizes[2] + x2 if inside else -1
                if place >= 0:
                    place = place * width + c
                    store(sums, place, load(sums, place) + load(dY, first + c))
        for x in range(inputs):
            for c in range(count):
                store(dX, (image * inputs + x) * inner + begin + c, load(sums, x * width + c))
        task = take(queue)


@kernel
def _forward(
    queue: Any, X: Any, Y: Any, Indices: Any, inner: int, numbers: Any, base: int, local: Any, last: Any
) -> None:
    """A task has a plane, or a sample whose channels are last. The innermost loop goes over the channels, or over the
    outputs of a line: its lanes.
    """
    kernel, outs, strides, dilations, begins, sizes = _axes(numbers)
    inputs, outputs = sizes[0] * sizes[1] * sizes[2], outs[0] * outs[1] * outs[2]
    lanes, columns, step = (inner, outs[2], 1) if last is not None else (outs[2], 1, strides[2])
    most, found = zeros(X, lanes), np.zeros(lanes, np.int64)
    task = take(queue)
    while task >= 0:
        at = task * outputs * inner
        for line in range(outs[0] * outs[1] * columns):
            o0, o1, o2 = line // (outs[1] * columns), line // columns % outs[1], line % columns
            most[:] = -np.inf
            found[:] = -1
            for tap in range(kernel[0] * kernel[1] * kernel[2]):
                x0 = o0 * strides[0] - begins[0] + tap // (kernel[1] * kernel[2]) * dilations[0]
                x1 = o1 * strides[1] - begins[1] + tap // kernel[2] % kernel[1] * dilations[1]
                x2 = o2 * strides[2] - begins[2] + tap % kernel[2] * dilations[2]
                if x0 < 0 or x0 >= sizes[0] or x1 < 0 or x1 >= sizes[1]:
                    continue
                if last is not None:
                    begin, end = 0, lanes if 0 <= x2 < sizes[2] else 0
                else:  # the lanes that have this element of their windows inside of the input
                    begin = max(0, (step - 1 - x2) // step)
                    end = min(lanes, (sizes[2] - 1 - x2) // step + 1)
                place = (x0 * sizes[1] + x1) * sizes[2] + x2
                first = (task * inputs + place) * inner
                index, next_index = (place, 1 if last is None else 0) if local is None else (tap, 0)
                for c in range(begin, end):
                    x = load(X, first + c * step)
                    if found[c] < 0 or x > load(most, c) or (x != x and load(most, c) == load(most, c)):
                        store(most, c, x)
                        found[c] = index + c * step * next_index
            for c in range(lanes):
                if Y is not None:
                    store(Y, at + c, load(most, c))
                if Indices is not None:
                    Indices[at + c] = found[c] + (task * inner + (c if last is not None else 0)) * base
            at += lanes
        task = take(queue)


def plan(call: Call) -> Plan:
    """The plan of max pooling or of a gradient."""
    if call.operator.startswith("MaxPool"):
        return _maximum(call)
    if "Input" in call.inputs:
        return _InputPlan(call)
    call = average(call)
    compute = arithmetic(call.inputs["dY"].dtype).type
    return separable_plan(call, [transposed(each, compute) for each in axis_maps(call)])


class _InputPlan:
    """DirectML's gradient of a max pool: two passes, with the indices of the first."""

    def __init__(self, call: Call) -> None:
        forward, gradient = maximum(call)
        self._forward, self._gradient = _maximum(forward), _maximum(gradient)
        self._indices, self._last = gradient.inputs["Indices"], channels_last(call.inputs["Input"])
        self.kernel = self._gradient.kernel
        self.scratch = self._indices.nbytes + max(self._forward.scratch, self._gradient.scratch)

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        shape, dtype = self._indices.shape, self._indices.dtype
        indices = np.empty((shape[0], *shape[2:], shape[1]) if self._last else shape, dtype)
        indices = np.moveaxis(indices, -1, 1) if self._last else indices
        self._forward(inputs[:1], (indices,), stream)
        self._gradient((inputs[1], indices), outputs, stream)


def _maximum(call: Call) -> FlatPlan:
    gradient = call.operator == "MaxPoolGrad"
    x = call.outputs["dX"] if gradient else call.inputs["X"]
    tensors = {**call.inputs, **call.outputs}
    order = spatial_order((x, *tensors.values()))
    windows = PoolWindows.of(call)
    last = order[-1] == 1
    images, inner = (x.shape[0], x.shape[1]) if last else (prod(x.shape[:2]), 1)
    inputs = prod(windows.inputs)
    names: list[str] = ["dY", "Indices", "dX"] if gradient else ["X", "Y", "Indices"]
    indices = tensors.get("Indices")
    local = True if indices is not None and indices.dtype == np.uint8 else None
    base = inputs if local is None and call.attributes["index_base"] == "tensor" else 0
    numbers = np.array(windows.numbers, np.int64)
    arrays = [argument_type(call, name, None, order) for name in names]
    flag = types.none if local is None else types.boolean
    order_flag = types.boolean if last else types.none
    nbytes = sum(each.nbytes for each in tensors.values())

    common = (types.int64, _NUMBERS)
    if gradient:
        extents = windows.inputs if local is None else windows.kernel
        divisors = np.array([extents[1] * extents[2], extents[2], *windows.dilations], np.float64)
        common = (*common, array_type(divisors.dtype), types.int64, flag)
        checked = _check(QUEUE, arrays[1], _NUMBERS, *common, order_flag)
        compiled = _gradient(QUEUE, *arrays, *common)

        def launch(read: list[np.ndarray], write: list[Any]) -> None:
            bad, given = np.zeros(2 * images, np.int64), (inner, numbers, divisors, base, local)
            threads.run(checked, images, nbytes, read[1], bad, *given, last or None)
            if bad[::2].any():
                raise DataError(_said(read[1], bad, windows))
            threads.run(compiled, images * -(-inner // _CHANNELS), nbytes, *read, *write, *given)

    else:
        compiled = _forward(QUEUE, *arrays, *common, types.int64, flag, order_flag)

        def launch(read: list[np.ndarray], write: list[Any]) -> None:
            threads.run(compiled, images, nbytes, *read, *write, inner, numbers, base, local, last or None)

    scratch = (
        inputs * min(inner, _CHANNELS) * arithmetic(x.dtype).itemsize
        if gradient
        else 16 * (inner if last else windows.outputs[2])
    )
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
