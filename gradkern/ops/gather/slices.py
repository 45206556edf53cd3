"""The elements of each dimension of the data that a slice reads, as SliceGrad and DmlSliceGrad say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradkern.errors import AttributeValueError, DataError, ShapeError

__all__ = ["ranges_of"]

Shape = tuple[int, ...]


def ranges_of(attributes: Mapping[str, Any], shape: Shape | None) -> list[range]:
    """One for each dimension of the data. shape: of the data; None where it is not known yet.

    Raises DataError, or of attributes AttributeValueError, for axes or steps out of range, and ShapeError for a window
    outside of the data.
    """
    if "InputWindowOffsets" in attributes:
        return _window(attributes, shape)
    assert shape is not None
    rank, starts, ends = len(shape), attributes["starts"], attributes["ends"]
    axes, steps = attributes.get("axes"), attributes.get("steps")
    axes, steps = range(len(starts)) if axes is None else axes, (1,) * len(starts) if steps is None else steps
    if not all(-rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) < len(starts):
        raise DataError(f"input axes is {tuple(axes)}; expected different ones from {-rank} to {rank - 1}")
    if 0 in steps:
        raise DataError(f"input steps is {tuple(steps)}; expected none to be 0")
    ranges = [range(size) for size in shape]
    for axis, *cut in zip(axes, starts, ends, steps, strict=True):
        ranges[axis] = _range(shape[axis], *cut)
    return ranges


def _range(size: int, start: int, end: int, step: int) -> range:
    """Backwards, a start before the first element is the first, as ONNX has it; NumPy would take nothing."""
    first, last = (0, size) if step > 0 else (-1, size - 1)
    start, end = (each + size if each < 0 else each for each in (start, end))
    return range(min(max(start, 0), last), min(max(end, first), last), step)


def _window(attributes: Mapping[str, Any], shape: Shape | None) -> list[range]:
    """DirectML's, which may be read from its end."""
    steps = attributes["InputWindowStrides"]
    if 0 in steps:
        raise AttributeValueError(f"attribute InputWindowStrides is {steps}; expected none to be 0")
    windows = list(zip(attributes["InputWindowOffsets"], attributes["InputWindowSizes"], steps, strict=True))
    ends = tuple(offset + size for offset, size, _ in windows)
    if shape is not None and any(end > size for end, size in zip(ends, shape, strict=True)):
        raise ShapeError(f"the window ends at {ends}, outside of OutputGradient, which has shape {shape}")
    return [
        range(offset, offset + size, step) if step > 0 else range(offset + size - 1, offset - 1, step)
        for offset, size, step in windows
    ]
