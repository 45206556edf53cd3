"""The gradients of gathers and slices: dX is 0, and each element of dY is added where the forward pass read it.

    GatherGrad          dX[.., indices[k], ..] += dY[.., k, ..]
    GatherElementsGrad  dX[i][indices[i][j][k]][k] += dY[i][j][k], here along axis 1
    GatherNDGrad        output[indices[k]] += update[k], for each of the batch's dimensions by itself
    PadAndUnflatten     output[indices[k]] += input[k], rows of an array whose first two dimensions count as one
    FlattenAndUnpad     output[k] = input[indices[k]], its gradient and the other way round
    SliceGrad           dX[start + step k] = dY[k] along each of the axes

Indices count from either end: -1 and the last one are the same. Sums are float32 (float64 for float64), in an order
that depends on the indices alone, and rounded once: the same call gives the same bits every time. GatherGrad with an
accumulator adds its sums to what is there, with one rounding, and writes no other row.

An index out of range is a DataError on the CPU. On a GPU, where nothing waits for the data, its part of dY is added to
nothing, as if its element were not there: the rest of dX is what it would be without it.

Source: ONNX Runtime Training, com.microsoft 1, CUDA kernels of these names. Beyond them: float64, int32 indices in
GatherNDGrad, the accumulator, padding_idx. They add with atomics, or several times to rows of 16 bits, and lose
updates where an index and its negative twin meet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradkern.errors import AttributeValueError, DataError, ShapeError

Shape = tuple[int, ...]


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The attributes.

    Raises ShapeError for indices of GatherElementsGrad with a dimension longer than that of the data, and for a
    gradient that is of no such slice; AttributeValueError for a padding_idx out of range; for axes, steps and windows
    the errors of `ranges_of`.
    """
    if "padding_idx" in attributes:
        padding, size = attributes["padding_idx"], axes["V"]
        if padding is not None and not -size <= padding < size:
            raise AttributeValueError(f"attribute padding_idx is {padding}; expected {-size} to {size - 1}")
    elif "outer" in axes:
        for name, data in (("outer", "before"), ("inner", "after")):
            if any(one > other for one, other in zip(axes[name], axes[data], strict=True)):
                raise ShapeError(
                    f"input indices has {name} dimensions {axes[name]}; expected at most {axes[data]}, those of input "
                    "shape"
                )
    elif "sliced" in axes:
        expected = tuple(map(len, ranges_of(attributes, axes.get("data"))))
        if axes["sliced"] != expected:
            name = "InputGradient" if "InputWindowOffsets" in attributes else "dY"
            raise ShapeError(f"input {name} has shape {axes['sliced']}; expected {expected}, that of the slice")
    return attributes


def ranges_of(attributes: Mapping[str, Any], shape: Shape | None) -> list[range]:
    """The elements of each dimension of the data that a slice reads. shape: of the data; None where it is not known.

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
    """DirectML's; it may be read from its end."""
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
