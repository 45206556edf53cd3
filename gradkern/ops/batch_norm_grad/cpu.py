"""Batch norm's gradient on the CPU: the sums in one pass, dX in another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu.channels import Apply, Reduce, Runs
from gradkern.cpu.staging import FlatPlan, argument_type

__all__ = ["plan"]

_SUMS = ("dScale", "dBias")
_OVER = ("dY", "X")
_FLOAT64 = np.dtype(np.float64)


def plan(call: Call) -> FlatPlan:
    X, outputs = call.inputs["X"], call.outputs
    order, runs = Runs.lying(X, [axis == 1 for axis in range(len(X.shape))])

    _, data, *parameters = (argument_type(call, name) for name in call.inputs)
    totals = [_FLOAT64 if "dX" in outputs or name in outputs else None for name in _SUMS]
    sums = Reduce(runs, data, parameters, types.none, totals)
    apply = Apply(runs, data, parameters, argument_type(call, "dX", _OVER, order)) if "dX" in outputs else None

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        dX, *gradients = write
        both = [None if dtype is None else np.empty(runs.channels, dtype) for dtype in totals]
        sums(read, None, both)
        if apply is not None:
            apply(read, both, dX)
        for name, gradient, total in zip(_SUMS, gradients, both, strict=True):
            if gradient is not None:
                gradient.view(outputs[name].dtype)[...] = total

    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=("dX", *_SUMS),
        launch=launch,
        over=_OVER,
        orders=dict.fromkeys((*_OVER, "dX"), order),
        scratch=sums.nbytes + 8 * runs.channels * len([dtype for dtype in totals if dtype is not None]),
    )
