"""Batch norm itself in training on the CPU: the statistics in two passes, and the output in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.batch_norm_statistics import Statistics
from gradkern.cpu.element_types import arithmetic, array_type
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs

_OVER = ("X", "Z")
_OUTPUTS = ("Y", "running_mean", "running_var", "saved_mean", "saved_inv_std")
_OF_ELEMENTS = {"X": "X", "scale": "scale", "bias": "B", "Z": "Z"}
_RUNNING = {"input_mean": "running_mean", "input_var": "running_var"}


def plan(call: Call) -> FlatPlan:
    X = call.inputs["X"]
    order, runs = Runs.of_tensor(X, [axis == 1 for axis in range(len(X.shape))])
    saved = arithmetic(X.dtype)
    statistics = Statistics(runs, X.dtype) if X.size else None
    elements = None
    if X.size and "Y" in call.outputs:
        kinds = {name: argument_type(call, each) for name, each in _OF_ELEMENTS.items()}
        kinds |= dict.fromkeys(("mean", "inv_std"), array_type(saved))
        kinds["out"] = argument_type(call, "Y", _OVER, order)
        elements = Elements(runs, kinds, call.attributes["activation"], call.attributes["activation_alpha"])

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        inputs = dict(zip(call.inputs, read, strict=True))
        Y, *others = write
        running = {to: inputs[name].view(call.inputs[name].dtype) for name, to in _RUNNING.items() if name in inputs}
        with np.errstate(all="ignore"):  # infinities and NaN go where they go, and what a type cannot hold is infinity
            found = _found(statistics and statistics(inputs["X"]), runs, running, call.attributes)
            for name, output in zip(_OUTPUTS[1:], others, strict=True):
                if output is not None:
                    output.view(call.outputs[name].dtype)[...] = found[name]
            mean, inv_std = (found[name].astype(saved) for name in ("saved_mean", "saved_inv_std"))
        if elements is not None:
            given = {name: inputs.get(each) for name, each in _OF_ELEMENTS.items()}
            elements({**given, "mean": mean, "inv_std": inv_std, "out": Y})

    return FlatPlan(
        call,
        kernel="forward_columns" if runs.columns else "forward_planes",
        outputs=_OUTPUTS,
        launch=launch,
        over=_OVER,
        orders=dict.fromkeys((*_OVER, "Y"), order),
        scratch=(statistics.nbytes if statistics else 0) + 6 * 8 * runs.channels,
    )


def _found(
    of_batch: tuple[np.ndarray, np.ndarray] | None,
    runs: Runs,
    running: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """All statistics; `of_batch`, mean and variance, is none where the batch is nothing."""
    outputs = {name: each.astype(np.float64) for name, each in running.items()}
    if of_batch is None:
        return {**outputs, **dict.fromkeys(("saved_mean", "saved_inv_std"), np.zeros(runs.channels))}
    mean, variance = of_batch
    sample = variance * runs.count / np.float64(runs.count - attributes["unbiased"])
    for name, new in {"running_mean": mean, "running_var": sample}.items():
        if name in outputs:
            outputs[name] = outputs[name] * attributes["momentum"] + new * (1 - attributes["momentum"])
    return {**outputs, "saved_mean": mean, "saved_inv_std": 1 / np.sqrt(variance + attributes["epsilon"])}
