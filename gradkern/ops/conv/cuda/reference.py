"""The float64 reference: elements of dX, dW and Y from their definition, for searches whose candidates disagree."""

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
    """The output's elements at places in it, a row of indices each; `inputs` are dY and W, dY and X, or X, W and B.

    Y[n, m, o] = B[m] + sum over c, k of W[m, c, k] * X[n, c, o*stride + k*dilation - pad]
    dW[m, c, k] = sum over n, o of dY[n, m, o] * X[n, c, o*stride + k*dilation - pad]
    dX[n, c, i] = sum over m, k of dY[n, m, o] * W[m, c, k] where o*stride + k*dilation - pad = i
    """
    (rows,), geometry = places, problem.geometry
    if problem.gradient == "Y":
        return (np.array([_of_output(geometry, *inputs, place=place) for place in rows.tolist()]),)
    dY, other = inputs
    if problem.gradient == "dX":
        return (np.array([_of_data(geometry, dY, other, place) for place in rows.tolist()]),)
    return (_of_weights(geometry, dY, other, rows.tolist()),)


def _of_output(geometry: Geometry, X: Array, W: Array, B: Array | None = None, *, place: list[int]) -> float:
    n, m, *position = place
    first = m // geometry.filters * geometry.channels
    taps: list[slice] = []
    seen: list[slice] = []
    axes = zip(
        position,
        geometry.spatial,
        geometry.kernel,
        geometry.strides,
        geometry.dilations,
        geometry.pads_begin,
        strict=True,
    )
    for o, size, kernel, stride, dilation, pad in axes:
        begin = o * stride - pad
        inside = [k for k in range(kernel) if 0 <= begin + k * dilation < size] or [0]
        if not 0 <= begin + inside[0] * dilation < size:
            return 0.0 if B is None else float(B[m])
        taps.append(slice(inside[0], inside[-1] + 1))
        seen.append(slice(begin + inside[0] * dilation, begin + inside[-1] * dilation + 1, dilation))
    left = W[m, :, *taps].astype(np.float64)
    right = X[n, first : first + geometry.channels, *seen].astype(np.float64)
    return float(np.vdot(left, right)) + (0.0 if B is None else float(B[m]))


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
    """Along one axis, each tap that reaches element i of X, and the element of dY."""
    for k in range(taps):
        o, between = divmod(i + pad - k * dilation, stride)
        if not between and 0 <= o < out:
            yield k, o
