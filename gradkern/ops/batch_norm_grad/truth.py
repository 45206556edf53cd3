"""Single elements of a batch norm's gradients from the formula, in float64: what a search asks where its candidates
disagree.
"""

from __future__ import annotations

import numpy as np

from gradkern.ops.batch_norm_grad.problem import Problem

__all__ = ["elements"]


def elements(problem: Problem, output: int, inputs: tuple[np.ndarray, ...], places: np.ndarray) -> np.ndarray:
    """Elements of an output, by its number among those that are wanted, at these places, a row of indices each."""
    Y, X, scale, mean, inv_std = inputs
    name = [name for name in ("dX", "dScale", "dBias") if getattr(problem, name) is not None][output]
    rows = [tuple(row) for row in places.tolist()]
    channels = [row[1 if name == "dX" else 0] for row in rows]
    sums = {}
    for c in set(channels):
        D, r = Y[:, c].astype(np.float64), float(inv_std[c])
        sums[c] = float((D * (X[:, c].astype(np.float64) - float(mean[c])) * r).sum()), float(D.sum())
    if name != "dX":
        return np.array([sums[c][0 if name == "dScale" else 1] for c in channels])
    found = []
    for row, c in zip(rows, channels, strict=True):
        dScale, dBias = sums[c]
        xh = (float(X[row]) - float(mean[c])) * float(inv_std[c])
        centred = float(Y[row]) - (dBias + xh * dScale) / problem.elements
        found.append(float(scale[c]) * float(inv_std[c]) * centred)
    return np.array(found)
