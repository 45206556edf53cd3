"""The float64 reference: single elements of dX and dW from the definition. A search asks where candidates disagree."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Geometry

__all__ = ["elements"]

Array = NDArray[Any]
Arrays = tuple[Array, ...]


def elements(problem: Problem, inputs: Arrays, places: Arrays) -> Arrays:
    """The gradient's elements at places in it, a row of indices each; `inputs` are dY and W, or dY and X.

    dW[m, c, k] = sum over n, o of dY[n, m, o] * X[n, c, o*stride + k*dilation - pad]
    dX[n, c, i] = sum over m, k of dY[n, m, o] * W[m, c, k] where o*stride + k*dilation - pad = i
    """
    (dY, other), (rows,), geometry = inputs, places, problem.geometry
    if problem.gradient == "dX":
        return (np.array([_of_data(geometry, dY, other, place) for place in rows.tolist()]),)
    return (_of_weights(geometry, dY, other, rows.tolist()),)


def _of_weights(geometry: Geometry, dY: Array, X: Array, places: list[list[int]]) -> Array:
    filters, channels = geometry.filters, geometry.channels
    own = [m // filters * channels + c for m, c, *_ in places]  # channels of X
    of_dY = {m: dY[:, m].astype(np.float64) for m in {m for m, *_ in places}}
    of_X = {channel: X[:, channel].astype(np.float64) for channel in set(own)}
    return np.array(
        [_correlated(geometry, of_dY[m], of_X[at], taps) for (m, _, *taps), at in zip(places, own, strict=True)]
    )


def _correlated(geometry: Geometry, dY: Array, X: Array, taps: list[int]) -> float:
    """The sum over all images and positions where these taps see X."""
    seen_dY: list[slice] = []
    seen_X: list[slice] = []
    axes = zip(
        taps, geometry.spatial, geometry.out, geometry.strides, geometry.dilations, geometry.pads_begin, strict=True
    )
    for k, size, out, stride, dilation, pad in axes:
        shift = k * dilation - pad
        first, last = max(0, -(shift // stride)), min(out - 1, (size - 1 - shift) // stride)
        if first > last:
            return 0.0
        seen_dY.append(slice(first, last + 1))
        seen_X.append(slice(first * stride + shift, last * stride + shift + 1, stride))
    return float(np.vdot(dY[:, *seen_dY], X[:, *seen_X]))


def _of_data(geometry: Geometry, dY: Array, W: Array, place: list[int]) -> float:
    n, channel, *position = place
    group, c = divmod(channel, geometry.channels)
    of_group = slice(group * geometry.filters, (group + 1) * geometry.filters)
    axes = zip(
        position, geometry.kernel, geometry.out, geometry.strides, geometry.dilations, geometry.pads_begin, strict=True
    )
    total = 0.0
    for each in product(*[list(_meeting(*axis)) for axis in axes]):
        taps, outs = zip(*each, strict=True) if each else ((), ())
        left, right = dY[n, of_group, *outs].astype(np.float64), W[of_group, c, *taps].astype(np.float64)
        total += float(np.vdot(left, right))
    return total


def _meeting(i: int, taps: int, out: int, stride: int, dilation: int, pad: int) -> Iterable[tuple[int, int]]:
    """Along one axis, each tap and the element of dY through which it reaches element i of X."""
    for k in range(taps):
        o, between = divmod(i + pad - k * dilation, stride)
        if not between and 0 <= o < out:
            yield k, o
