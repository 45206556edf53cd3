"""Statistics of a batch in parts on the CPU: few numbers, so NumPy's passes over them, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call

__all__ = ["MergePlan", "plan"]


class MergePlan:
    """Means, variances and numbers of elements of all parts, merged."""

    kernel = "merge"

    def __init__(self, call: Call) -> None:
        self._epsilon = call.attributes["epsilon"]
        self._outputs = tuple(call.outputs)
        self.scratch = 8 * 4 * call.inputs["part_statistics"].size

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        (parts,) = inputs
        wide = parts.astype(np.float64)
        channels = wide.shape[1] // 2
        means, variances, counts = wide[:, :channels], wide[:, channels:-1], wide[:, -1:]
        total = counts.sum()
        if not total:
            for array in outputs:
                array[...] = 0
            return
        with np.errstate(all="ignore"):  # infinities and NaN go where they go
            mean = (means * counts).sum(0) / total
            squares = ((variances + (means - mean) ** 2) * counts).sum(0)  # of what each element is from the mean
            spreads = {
                "statistics": 1 / np.sqrt(squares / total + self._epsilon),
                "sample_statistics": squares / max(total - 1, 1),
            }
            for name, array in zip(self._outputs, outputs, strict=True):
                array[:channels], array[channels:-1], array[-1] = mean, spreads[name], total


def plan(call: Call) -> MergePlan:
    """Any strides are taken."""
    return MergePlan(call)
