"""Single elements of a batch norm's gradients from the formula, in float64: what a search asks where its candidates
disagree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.ops.batch_norm.cuda.problem import Problem

__all__ = ["elements"]

Arrays = tuple[np.ndarray[Any, Any], ...]


def elements(problem: Problem, inputs: Arrays, places: Arrays) -> Arrays:
    """Elements of the wanted of dX, dScale and dBias, for each of them at places in it, a row of indices each."""
    Y, X, scale, mean, inv_std = inputs
    names = [name for name in ("dX", "dScale", "dBias") if getattr(problem, name) is not None]
    wanted: dict[str, list[tuple[int, ...]]] = {
        name: [tuple(row) for row in rows.tolist()] for name, rows in zip(names, places, strict=True)
    }
    sums: dict[int, dict[str, float]] = {}
    for c in {row[1 if name == "dX" else 0] for name, rows in wanted.items() for row in rows}:
        D, r = Y[:, c].astype(np.float64), float(inv_std[c])
        xh = (X[:, c].astype(np.float64) - float(mean[c])) * r
        sums[c] = {"dScale": float((D * xh).sum()), "dBias": float(D.sum())}

    def element(name: str, row: tuple[int, ...]) -> float:
        if name != "dX":
            return sums[row[0]][name]
        c = row[1]
        xh = (float(X[row]) - float(mean[c])) * float(inv_std[c])
        centred = float(Y[row]) - (sums[c]["dBias"] + xh * sums[c]["dScale"]) / problem.elements
        return float(scale[c]) * float(inv_std[c]) * centred

    return tuple(np.array([element(name, row) for row in rows]) for name, rows in wanted.items())
