"""Where the elements of an array lie: strides of new arrays, and arrays that share memory with themselves."""

from __future__ import annotations

import numpy as np

from gradkern.call import Tensor

__all__ = ["c_strides", "dense_like", "overlaps_itself"]


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
