"""Single elements of a batch norm's gradients from the formula, in float64, for searches whose candidates
disagree.
"""

from __future__ import annotations

from math import erfc, pi, sqrt
from typing import Any

import numpy as np

from gradkern.kernels.channels.activation_alpha import without_alpha
from gradkern.ops.batch_norm.cuda.problem import Problem

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]


def elements(problem: Problem, inputs: Arrays, places: Arrays) -> Arrays:
    """Elements of each wanted gradient at places in it, a row of indices each."""
    given = dict(zip(problem.given, inputs, strict=True))
    X, mean, inv_std = given["X"], given["saved_mean"], given["saved_inv_std"]
    channels: dict[int, tuple[Array, Array, float, float]] = {}

    def of(c: int) -> tuple[Array, Array, float, float]:
        """For a channel: D, the normalised X, and the sums of D and of D times the normalised X."""
        if c not in channels:
            dY = [given[name][:, c].astype(np.float64) for name in ("dY", "dY2") if name in given]
            xh = (X[:, c].astype(np.float64) - float(mean[c])) * float(inv_std[c])
            D = np.sum(dY, axis=0) * _derivative(problem.activation, given, xh, c)
            channels[c] = D, xh, float(D.sum()), float((D * xh).sum())
        return channels[c]

    def element(name: str, row: tuple[int, ...]) -> float:
        if name in ("dScale", "dBias"):
            _, _, bias, scale = of(row[0])
            return scale if name == "dScale" else bias
        c, place = row[1], (row[0], *row[2:])
        D, xh, bias, scale = of(c)
        if name == "dZ":
            return float(D[place])
        centred = float(D[place]) - (bias + float(xh[place]) * scale) / problem.elements
        return float(given["Scale"][c]) * float(inv_std[c]) * centred

    rows = ([tuple(row) for row in each.tolist()] for each in places)
    return tuple(
        np.array([element(name, row) for row in each]) for name, each in zip(problem.wanted, rows, strict=True)
    )


def _derivative(activation: str, given: dict[str, Array], xh: Array, c: int) -> Array:
    """The activation's derivative, for the elements of a channel."""
    name, alpha = without_alpha(activation)
    if name == "none":
        return np.ones(xh.shape)
    # Y has the sign of t
    t = given["Y"][:, c].astype(np.float64) if "Y" in given else xh * float(given["Scale"][c]) + float(given["B"][c])
    if name == "relu":
        return ~(t <= 0)
    if name == "leaky_relu":
        return np.where(t > 0, 1.0, alpha)
    if name == "relu6":
        return np.where((t <= 0) | (t >= 6), 0.0, 1.0)
    if name == "hardswish":
        return np.where(np.abs(t) <= 3, t / 3 + 0.5, t > 0)
    if name == "elu":
        return np.where(t > 0, 1.0, alpha * np.exp(np.minimum(t, 0)))
    if name == "gelu":
        density = np.exp(-(t**2) / 2) / sqrt(2 * pi)
        return np.vectorize(erfc)(-t / sqrt(2)) / 2 + t * density
    s = 1 / (1 + np.exp(-t))
    return s * (1 + t * (1 - s))
