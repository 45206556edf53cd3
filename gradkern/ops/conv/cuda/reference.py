"""Single elements of dX and dW from the definition, in float64: what a search asks where its candidates disagree."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np

from gradkern.ops.conv.cuda.problem import Problem

__all__ = ["elements"]

Arrays = tuple[np.ndarray, ...]


def elements(problem: Problem, inputs: Arrays, places: Arrays) -> Arrays:
    """The gradient's elements at places in it, a row of indices each; `inputs` are dY and W, or dY and X.

    dW[m, c, k] = sum over n, o of dY[n, m, o] * X[n, c, o*stride + k*dilation - pad]
    dX[n, c, i] = sum over m, k of dY[n, m, o] * W[m, c, k] where o*stride + k*dilation - pad = i
    """
    (Y, other), (rows,) = inputs, places
    if problem.gradient == "dX":
        return (np.array([_of_data(problem, Y, other, place) for place in rows.tolist()]),)
    return (_of_weights(problem, Y, other, rows.tolist()),)


def _of_weights(problem: Problem, Y: np.ndarray, X: np.ndarray, places: list[list[int]]) -> np.ndarray:
    filters, channels = Y.shape[1] // problem.group, X.shape[1] // problem.group
    own = [m // filters * channels + c for m, c, *_ in places]  # channels of X
    of_Y = {m: Y[:, m].astype(np.float64) for m in {m for m, *_ in places}}
    of_X = {channel: X[:, channel].astype(np.float64) for channel in set(own)}
    return np.array(
        [_correlated(problem, of_Y[m], of_X[at], taps) for (m, _, *taps), at in zip(places, own, strict=True)]
    )


def _correlated(problem: Problem, Y: np.ndarray, X: np.ndarray, taps: list[int]) -> float:
    """The sum over all images and positions where these taps see X."""
    seen_Y: list[slice] = []
    seen_X: list[slice] = []
    axes = zip(taps, X.shape[1:], Y.shape[1:], problem.strides, problem.dilations, problem.pads_begin, strict=True)
    for k, size, out, stride, dilation, pad in axes:
        shift = k * dilation - pad
        first, last = max(0, -(shift // stride)), min(out - 1, (size - 1 - shift) // stride)
        if first > last:
            return 0.0
        seen_Y.append(slice(first, last + 1))
        seen_X.append(slice(first * stride + shift, last * stride + shift + 1, stride))
    return float(np.vdot(Y[:, *seen_Y], X[:, *seen_X]))


def _of_data(problem: Problem, Y: np.ndarray, W: np.ndarray, place: list[int]) -> float:
    n, channel, *position = place
    filters, channels = W.shape[0] // problem.group, W.shape[1]
    group, c = divmod(channel, channels)
    of_group = slice(group * filters, (group + 1) * filters)
    axes = zip(position, W.shape[2:], Y.shape[2:], problem.strides, problem.dilations, problem.pads_begin, strict=True)
    pairs = [list(_meeting(*each)) for each in axes]
    total = 0.0
    for each in product(*pairs):
        taps, outs = zip(*each, strict=True) if each else ((), ())
        left, right = Y[n, of_group, *outs].astype(np.float64), W[of_group, c, *taps].astype(np.float64)
        total += float(np.vdot(left, right))
    return total


def _meeting(i: int, taps: int, out: int, stride: int, dilation: int, pad: int) -> Iterable[tuple[int, int]]:
    """Along one axis, each tap and the element of dY through which it reaches element i of X."""
    for k in range(taps):
        o, between = divmod(i + pad - k * dilation, stride)
        if not between and 0 <= o < out:
            yield k, o
