"""Batch norm on the CPU with statistics that are given: one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs

__all__ = ["plan"]

_OVER = "X", "Z"  # as of all passes over elements; here is no Z
_OF_ELEMENTS = {"X": "X", "scale": "scale", "bias": "B", "mean": "saved_mean", "inv_std": "saved_inv_std"}


def plan(call: Call) -> FlatPlan:
    X = call.inputs["X"]
    order, runs = Runs.of_tensor(X, [axis == 1 for axis in range(len(X.shape))])
    kinds = {name: argument_type(call, each) for name, each in _OF_ELEMENTS.items()}
    kinds["out"] = argument_type(call, "Y", _OVER, order)
    elements = Elements(runs, kinds, "none") if X.size else None

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
