"""The float64 reference: elements of dX, dW and Y from their definition, for searches whose candidates disagree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Geometry

Array = NDArray[Any]
Arrays = tuple[Array, ...]


def elements(problem: Problem, inputs: Arrays, places: Arrays) -> Arrays:
    """The output's elements at places in it, a row of indices each; `inputs` are dY and W, dY and X, or X, W and B.

    Y[n, m, o] = B[m] + sum over c, k of W[m, c, k] * X[n, c, o*stride + k*dilation - pad]
    dW[m, c, k] = sum over n, o of dY[n, m, o] * X[n, c, o*stride + k*dilation - pad]
    dX[n, c, i] = sum over m, k of dY[n, m, o] * W[m, c, k] where o*stride + k*dilation - pad = i
    """
    (rows,), geometry = places, problem.geometry
    if problem.gradient == "Y":
        X, W, *B = inputs
        found = [_of_output(geometry, X, W, n, m, position) for n, m, *position in rows.tolist()]
        return (np.array(found) + (B[0].astype(np.float64)[rows[:, 1]] if B else 0.0),)
    dY, other = inputs
    if problem.gradient == "dX":
        return (np.array([_of_data(geometry, dY, other, n, c, position) for n, c, *position in rows.tolist()]),)
    return (_of_weights(geometry, dY, other, rows.tolist()),)


def _of_output(geometry: Geometry, X: Array, W: Array, n: int, m: int, position: list[int]) -> float:
    steps = zip(position, geometry.strides, geometry.dilations, geometry.pads_begin, strict=True)
    axes = zip(steps, geometry.spatial, geometry.kernel, strict=True)
    pairs = [
        [(k, i) for k in range(taps) if 0 <= (i := o * stride + k * dilation - pad) < size]
        for (o, stride, dilation, pad), size, taps in axes
    ]
    first = m // geometry.filters * geometry.channels
    return _sum(W[m], X[n, first : first + geometry.channels], pairs)


def _of_data(geometry: Geometry, dY: Array, W: Array, n: int, channel: int, position: list[int]) -> float:
    steps = zip(position, geometry.strides, geometry.dilations, geometry.pads_begin, strict=True)
    axes = zip(steps, geometry.out, geometry.kernel, strict=True)
    pairs = [
        [
            (k, at // stride)
            for k in range(taps)
            if 0 <= (at := i + pad - k * dilation) < out * stride and at % stride == 0
        ]
        for (i, stride, dilation, pad), out, taps in axes
    ]
    group, c = divmod(channel, geometry.channels)
    filters = slice(group * geometry.filters, (group + 1) * geometry.filters)
    return _sum(W[filters, c], dY[n, filters], pairs)


def _sum(weights: Array, seen: Array, pairs: list[list[tuple[int, int]]]) -> float:
    """The sum of the products of weights and elements; `pairs` of a tap and an element along each spatial axis."""
    taps, places = (np.ix_(*([pair[place] for pair in axis] for axis in pairs)) for place in range(2))
    left, right = weights[:, *taps].astype(np.float64), seen[:, *places].astype(np.float64)
    return float(np.vdot(left, right))


def _of_weights(geometry: Geometry, dY: Array, X: Array, places: list[list[int]]) -> Array:
    """Channels are copied once, of dY and of X."""
    channels = [m // geometry.filters * geometry.channels + c for m, c, *_ in places]
    of_dY: dict[int, Array] = {m: dY[:, m].astype(np.float64) for m in {m for m, *_ in places}}
    of_X: dict[int, Array] = {channel: X[:, channel].astype(np.float64) for channel in set(channels)}
    axes, found = list(range(1 + geometry.rank)), list[float]()
    for (m, _, *taps), channel in zip(places, channels, strict=True):
        shifts = [k * step - pad for k, step, pad in zip(taps, geometry.dilations, geometry.pads_begin, strict=True)]
        outs: list[slice] = []
        seen: list[slice] = []
        for shift, stride, out, size in zip(shifts, geometry.strides, geometry.out, geometry.spatial, strict=True):
            first = max(0, -(shift // stride))
            last = max(first, min(out, (size - 1 - shift) // stride + 1))
            start = first * stride + shift
            outs.append(slice(first, last))
            seen.append(slice(start, start + (last - first) * stride, stride))
        # einsum has no copies, as vdot would have
        found.append(float(np.einsum(of_dY[m][:, *outs], axes, of_X[channel][:, *seen], axes, [])))
    return np.array(found)
