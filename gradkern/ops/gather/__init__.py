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

__all__ = ["resolve"]


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The attributes; of SliceGrad starts, ends and steps for every dimension, all in bounds.

    Raises ShapeError for indices of GatherElementsGrad with a dimension longer than that of the data, and for a dY of
    SliceGrad that is no such slice; AttributeValueError for a padding_idx out of range; DataError for axes or steps.
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
    elif "InputWindowOffsets" in attributes:
        return _window(axes, attributes)
    elif "sliced" in axes:
        return _slices(axes, attributes)
    return attributes


def _range(size: int, start: int, end: int, step: int) -> range:
    """Backwards, a start before the first element is the first, as ONNX has it; NumPy would take nothing."""
    first, last = (0, size) if step > 0 else (-1, size - 1)
    start, end = (each + size if each < 0 else each for each in (start, end))
    return range(min(max(start, 0), last), min(max(end, first), last), step)


def _window(axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """DirectML's: a window that may be read from its end."""
    steps = attributes["InputWindowStrides"]
    if 0 in steps:
        raise AttributeValueError(f"attribute InputWindowStrides is {steps}; expected none to be 0")
    windows = list(zip(attributes["InputWindowOffsets"], attributes["InputWindowSizes"], strict=True))
    ends = tuple(offset + size for offset, size in windows)
    if axes.get("data") is not None and any(end > size for end, size in zip(ends, axes["data"], strict=True)):
        raise ShapeError(f"the window ends at {ends}, outside of OutputGradient, which has shape {axes['data']}")
    expected = tuple(-(-size // abs(step)) for (_, size), step in zip(windows, steps, strict=True))
    if axes["sliced"] != expected:
        raise ShapeError(f"input InputGradient has shape {axes['sliced']}; expected {expected}, that of the slice")
    starts = tuple(start if step > 0 else start + size - 1 for (start, size), step in zip(windows, steps, strict=True))
    every = zip(starts, expected, steps, strict=True)
    return {**attributes, "starts": starts, "ends": tuple(a + n * step for a, n, step in every), "steps": steps}


def _slices(axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    shape, sliced = axes["data"], axes["sliced"]
    rank, number = len(shape), len(attributes["starts"])
    cut, steps = attributes.get("axes"), attributes.get("steps")
    cut, steps = range(number) if cut is None else cut, (1,) * number if steps is None else steps
    if not all(-rank <= axis < rank for axis in cut) or len({axis % rank for axis in cut}) < number:
        raise DataError(f"input axes is {tuple(cut)}; expected different ones from {-rank} to {rank - 1}")
    if 0 in steps:
        raise DataError(f"input steps is {tuple(steps)}; expected none to be 0")
    ranges = [range(size) for size in shape]
    for axis, start, end, step in zip(cut, attributes["starts"], attributes["ends"], steps, strict=True):
        ranges[axis] = _range(shape[axis], start, end, step)
    expected = tuple(map(len, ranges))
    if sliced != expected:
        raise ShapeError(f"input dY has shape {sliced}; expected {expected}, that of the slice")
    return {
        **attributes,
        "starts": tuple(each.start for each in ranges),
        "ends": tuple(each.stop for each in ranges),
        "axes": tuple(range(rank)),
        "steps": tuple(each.step for each in ranges),
    }
