"""A batch in parts on the CPU: statistics of a part as one message, those of all parts merged, and Y of a part."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.batch_norm_statistics import Statistics
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs

_OVER = "X", "Z"  # as of all passes over elements; here is no Z
_OF_ELEMENTS = {"X": "X", "scale": "scale", "bias": "B", "mean": "saved_mean", "inv_std": "saved_inv_std"}


def plan(call: Call) -> FlatPlan | MergePlan:
    if "X" not in call.inputs:
        return MergePlan(call)
    X = call.inputs["X"]
    order, runs = Runs.of_tensor(X, [axis == 1 for axis in range(len(X.shape))])
    return (_statistics if "part_statistics" in call.outputs else _from_statistics)(call, order, runs)


def _statistics(call: Call, order: tuple[int, ...] | None, runs: Runs) -> FlatPlan:
    """Two passes."""
    X = call.inputs["X"]
    statistics = Statistics(runs, X.dtype) if X.size else None
    channels = X.shape[1]

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        (message,) = write
        message[...] = 0
        if statistics is not None:
            with np.errstate(all="ignore"):  # infinities and NaN go where they go
                message[:channels], message[channels:-1] = statistics(read[0])
            message[-1] = runs.count

    return FlatPlan(
        call,
        kernel="statistics_columns" if runs.columns else "statistics_planes",
        outputs=("part_statistics",),
        launch=launch,
        orders={"X": order},
        scratch=(statistics.nbytes if statistics else 0) + 4 * 8 * channels,
    )


def _from_statistics(call: Call, order: tuple[int, ...] | None, runs: Runs) -> FlatPlan:
    """One pass."""
    kinds = {name: argument_type(call, each) for name, each in _OF_ELEMENTS.items()}
    kinds["out"] = argument_type(call, "Y", _OVER, order)
    elements = Elements(runs, kinds, "none") if call.inputs["X"].size else None

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        inputs = dict(zip(call.inputs, read, strict=True))
        if elements is not None:
            elements({**{name: inputs[each] for name, each in _OF_ELEMENTS.items()}, "out": write[0]})

    return FlatPlan(
        call,
        kernel="from_statistics_columns" if runs.columns else "from_statistics_planes",
        outputs=("Y",),
        launch=launch,
        over=_OVER,
        orders={"X": order, "Y": order},
    )


class MergePlan:
    """Means, variances and numbers of elements of all parts, merged, and running statistics moved towards them. Few
    numbers of any strides: NumPy passes over them, in float64.
    """

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
