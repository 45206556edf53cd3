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
    """Channels of dY are copied once, those of X once for each offset within a stride."""
    filters, channels = geometry.filters, geometry.channels
    own = sorted({m for m, *_ in places})
    rows = np.moveaxis(dY.take(own, axis=1), 1, 0).astype(np.float64, order="C")
    of_dY = dict(zip(own, rows, strict=True))
    of_X: dict[tuple[int, ...], Array] = {}
    found: list[float] = []
    for m, c, *taps in places:
        shifts = [k * step - pad for k, step, pad in zip(taps, geometry.dilations, geometry.pads_begin, strict=True)]
        steps = [divmod(shift, stride) for shift, stride in zip(shifts, geometry.strides, strict=True)]
        met = m // filters * channels + c, *(rest for _, rest in steps)
        if met not in of_X:
            every = [slice(rest, None, stride) for rest, stride in zip(met[1:], geometry.strides, strict=True)]
            of_X[met] = X[:, met[0], *every].astype(np.float64)
        found.append(_product(of_dY[m], of_X[met], [ahead for ahead, _ in steps]))
    return np.array(found)


def _product(dY: Array, X: Array, ahead: list[int]) -> float:
    """The sum over all images, and all positions o that X has at o + ahead, of both."""
    seen_dY: list[slice] = []
    seen_X: list[slice] = []
    for out, size, steps in zip(dY.shape[1:], X.shape[1:], ahead, strict=True):
        first, last = max(0, -steps), min(out, size - steps)
        if first >= last:
            return 0.0
        seen_dY.append(slice(first, last))
        seen_X.append(slice(first + steps, last + steps))
    axes = list(range(dY.ndim))
    return float(np.einsum(dY[:, *seen_dY], axes, X[:, *seen_X], axes, []))  # without the copies of vdot
