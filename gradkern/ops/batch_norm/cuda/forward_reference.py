"""Single elements of a batch norm's results from the formula, in float64, for searches whose candidates
disagree.
"""

from __future__ import annotations

from math import exp, expm1
from typing import Any

import numpy as np

from gradkern.kernels.channels.activation_alpha import without_alpha
from gradkern.ops.batch_norm.cuda.problem import ForwardProblem

__all__ = ["elements"]

Arrays = tuple[np.ndarray[Any, Any], ...]


def elements(problem: ForwardProblem, inputs: Arrays, places: Arrays) -> Arrays:
    """Elements of each output at places in it, a row of indices each."""
    given = dict(zip(dict(problem.given), inputs, strict=True))
    statistics: dict[int, tuple[float, float, float]] = {}

    def of(c: int) -> tuple[float, float, float]:
        """Mean, variance and 1 / sqrt(variance + epsilon) of a channel."""
        if c not in statistics:
            X = given["X"][:, c].astype(np.float64)
            variance = float(X.var())
            statistics[c] = float(X.mean()), variance, (variance + problem.epsilon) ** -0.5
        return statistics[c]

    def element(name: str, row: tuple[int, ...]) -> float:
        c = row[1] if name == "Y" else row[0]
        mean, variance, inv_std = of(c)
        if name == "saved_mean":
            return mean
        if name == "saved_inv_std":
            return inv_std
        if name == "running_mean":
            return float(given["input_mean"][c]) * problem.momentum + mean * (1 - problem.momentum)
        if name == "running_var":
            moved = variance * problem.correction * (1 - problem.momentum)
            return float(given["input_var"][c]) * problem.momentum + moved
        t = (float(given["X"][row]) - mean) * inv_std * float(given["scale"][c]) + float(given["B"][c])
        t += float(given["Z"][row]) if "Z" in given else 0.0
        activation, alpha = without_alpha(problem.activation)
        if activation == "relu":
            return max(t, 0.0)
        if activation == "leaky_relu":
            return t if t > 0 else alpha * t
        others = {
            "none": t,
            "silu": t / (1 + exp(-t)),
            "relu6": min(max(t, 0.0), 6.0),
            "hardswish": t * min(max(t + 3, 0.0), 6.0) / 6,
            "elu": t if t > 0 else alpha * expm1(t),
        }
        return others[activation]

    names = [name for name, _ in problem.wanted]
    rows = ([tuple(row) for row in each.tolist()] for each in places)
    return tuple(np.array([element(name, row) for row in each]) for name, each in zip(names, rows, strict=True))
