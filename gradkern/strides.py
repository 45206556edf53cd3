"""Strides of arrays: those of new arrays, their order, and arrays whose elements share memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradkern.call import Tensor


def dense_like(model: Tensor, shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    """Byte strides for a new array of `shape` in the memory order of `model`, if that has no gaps; else in C order."""
    strides = c_strides(shape, dtype.itemsize)
    if model.shape != shape or 0 in shape:
        return strides
    order = sorted(range(len(shape)), key=lambda axis: (-model.strides[axis], axis))
    expected = model.dtype.itemsize
    result = [0] * len(shape)
    for axis in reversed(order):
        if shape[axis] != 1 and model.strides[axis] != expected:
            return strides
        result[axis] = expected // model.dtype.itemsize * dtype.itemsize
        expected *= shape[axis]
    return tuple(result)


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides: list[int] = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def end_to_end(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """The array with the strides of one without gaps whose axes run in `order`, slowest first; in C order for an array
    with fewer axes, or an empty order.
    """
    axes = order if len(order) == len(tensor.shape) else range(len(tensor.shape))
    steps = dict(zip(axes, c_strides(tuple(tensor.shape[axis] for axis in axes), tensor.dtype.itemsize), strict=True))
    return tensor._replace(strides=tuple(steps[axis] for axis in range(len(steps))), alignment=16)


def channels_last(tensor: Tensor) -> bool | None:
    """Whether axis 1, the channels, runs faster than the spatial axes; None where sizes of 1 leave it open."""
    spatial = [stride for size, stride in zip(tensor.shape[2:], tensor.strides[2:], strict=True) if size > 1]
    return tensor.strides[1] < min(spatial) if spatial and tensor.shape[1] > 1 else None


def channels_as_in(model: Tensor, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides for a new array of `shape`: with the channels, axis 1, last where `model` has them so."""
    return channels_last_strides(shape, itemsize) if channels_last(model) else c_strides(shape, itemsize)


def channels_last_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    batch, *positions, channel = c_strides((shape[0], *shape[2:], shape[1]), itemsize)
    return (batch, channel, *positions)


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """The axes in the order of memory, slowest first."""
    return tuple(sorted(range(len(tensor.shape)), key=lambda axis: -abs(tensor.strides[axis])))


def layout(tensor: Tensor) -> str:
    """The place of the channels, axis 1, in memory, in words."""
    return "channels-last" if memory_order(tensor)[-1] == 1 else "channels-first"


def is_aligned(tensor: Tensor) -> bool:
    """Whether an access to any one element has an address that its type can have."""
    steps = (step for size, step in zip(tensor.shape, tensor.strides, strict=True) if size > 1)
    return not any(number % tensor.dtype.alignment for number in (tensor.alignment, *steps))


def is_dense(tensor: Tensor, order: Sequence[int] | None = None) -> bool:
    """Whether the elements have no gaps when the axes run in `order`, slowest first; None: in C order."""
    if tensor.alignment < tensor.dtype.alignment:
        return False
    if 0 in tensor.shape:
        return True
    step = tensor.dtype.itemsize
    for axis in reversed(range(len(tensor.shape)) if order is None else order):
        if tensor.shape[axis] != 1:
            if tensor.strides[axis] != step:
                return False
            step *= tensor.shape[axis]
    return True


def merged_axes(sizes: Sequence[int], is_kept: Sequence[bool]) -> list[tuple[int, bool]]:
    """(size, is kept) of the axes of a dense array, in memory order, neighbours of one kind taken as one axis.

    Axes of size 1 are of any kind.
    """
    axes: list[tuple[int, bool]] = []
    for size, kept in zip(sizes, is_kept, strict=True):
        if axes and (size == 1 or axes[-1][1] == kept):
            axes[-1] = (axes[-1][0] * size, axes[-1][1])
        elif size != 1:
            axes.append((size, kept))
    return axes


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two elements of one array share memory, as in a broadcast array."""
    if tensor.size <= 1:
        return False
    reach = tensor.dtype.itemsize
    for stride, size in sorted(
        (abs(stride), size) for stride, size in zip(tensor.strides, tensor.shape, strict=True) if size > 1
    ):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False
