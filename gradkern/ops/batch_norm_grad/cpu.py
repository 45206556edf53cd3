"""Batch norm's gradient on the CPU: the sums in one pass, dX in another."""

from __future__ import annotations

import numpy as np

from gradkern.call import Call
from gradkern.cpu.channels import Apply, Reduce, Runs, memory_order
from gradkern.cpu.staging import FlatPlan

__all__ = ["plan"]

_FLOAT64 = np.dtype(np.float64)


def plan(call: Call) -> FlatPlan:
    X, outputs = call.inputs["X"], call.outputs
    is_kept = [axis == 1 for axis in range(len(X.shape))]
    order = memory_order(X, is_kept)
    axes = range(len(X.shape)) if order is None else order
    runs = Runs.of([X.shape[axis] for axis in axes], [is_kept[axis] for axis in axes])
    parameters = tuple(call.inputs[name].dtype for name in ("Scale", "saved_mean", "saved_inv_std"))
    wanted = {name: "dX" in outputs or name in outputs for name in ("dScale", "dBias")}
    totals = [_FLOAT64 if wanted[name] else None for name in ("dScale", "dBias")]
    sums = Reduce(runs, X.dtype, parameters, None, None, *totals)
    apply = Apply(runs, X.dtype, parameters) if "dX" in outputs else None

    def launch(read: list[np.ndarray], write: list[np.ndarray | None]) -> None:
        dX, dScale, dBias = write
        scale_sum, bias_sum = (None if dtype is None else np.empty(runs.channels, dtype) for dtype in totals)
        sums(*read, None, scale_sum, bias_sum)
        if apply is not None:
            apply(*read, scale_sum, bias_sum, dX)
        for name, gradient, total in (("dScale", dScale, scale_sum), ("dBias", dBias, bias_sum)):
            if gradient is not None:
                gradient.view(outputs[name].dtype)[...] = total

    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=("dX", "dScale", "dBias"),
        launch=launch,
        orders=dict.fromkeys(("dY", "X", "dX"), order),
        scratch=sums.nbytes + 8 * runs.channels * sum(wanted.values()),
    )
