"""Statistics of a batch in parts on the CPU: few numbers, so NumPy's passes over them, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call

__all__ = ["MergePlan", "plan"]


class MergePlan:
    """Means, variances and numbers of elements of all parts, merged, and running statistics moved towards them."""

    kernel = "merge"

    def __init__(self, call: Call) -> None:
        self._epsilon, self._momentum = call.attributes["epsilon"], call.attributes["momentum"]
        self._inputs, self._outputs = tuple(call.inputs), tuple(call.outputs)
        self.scratch = 8 * 4 * call.inputs["part_statistics"].size

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        given, found = (dict(zip(*each, strict=True)) for each in ((self._inputs, inputs), (self._outputs, outputs)))
        wide = given["part_statistics"].astype(np.float64)
        channels = wide.shape[1] // 2
        means, variances, counts = wide[:, :channels], wide[:, channels:-1], wide[:, -1:]
        total = counts.sum()
        with np.errstate(all="ignore"):  # infinities and NaN go where they go
            mean = (means * counts).sum(0) / (total or 1)
            squares = ((variances + (means - mean) ** 2) * counts).sum(0)  # of what each element is from the mean
            inverse = 1 / np.sqrt(squares / total + self._epsilon) if total else np.zeros(channels)
            sample = squares / max(total - 1, 1)
            for name, spread in (("statistics", inverse), ("sample_statistics", sample)):
                if name in found:
                    found[name][:channels], found[name][channels:-1], found[name][-1] = mean, spread, total
            for before, name, new in (("input_mean", "running_mean", mean), ("input_var", "running_var", sample)):
                if name in found:
                    old = given[before].astype(np.float64)
                    found[name][...] = old * self._momentum + new * (1 - self._momentum)


def plan(call: Call) -> MergePlan:
    """Any strides are taken."""
    return MergePlan(call)
