"""Batch norm's gradient on the CPU: the sums in one pass, unless they are given, and dX in another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu.batch_norm import Apply, Reduce
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs

__all__ = ["plan"]

_READ = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
_SUMS = ("dScale", "dBias")
_OVER = ("dY", "X")
_FLOAT64 = np.dtype(np.float64)


def plan(call: Call) -> FlatPlan:
    X, outputs = call.inputs["X"], call.outputs
    order, runs = Runs.of_tensor(X, [axis == 1 for axis in range(len(X.shape))])

    _, data, *parameters = (argument_type(call, name) for name in _READ)
    summed = [name for name in _SUMS if name not in call.inputs and ("dX" in outputs or name in outputs)]
    reduce = None
    if summed:
        reduce = Reduce(runs, data, parameters, types.none, [_FLOAT64 if name in summed else None for name in _SUMS])
    apply = None
    if "dX" in outputs:
        dX_type = argument_type(call, "dX", _OVER, order)
        apply = Apply(runs, data, parameters, dX_type)
    count = call.attributes.get("count", runs.count)

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        inputs = dict(zip(call.inputs, read, strict=True))
        arrays: list[Any] = [inputs.get(name) for name in _READ]
        dX, *gradients = write
        if reduce is not None:
            sums = [np.empty(runs.channels) if name in summed else None for name in _SUMS]
            reduce(arrays, None, sums)
        else:
            sums = [inputs[name].astype(_FLOAT64) for name in _SUMS]
        if apply is not None:
            apply(arrays, sums, dX, inputs["counts"].sum(dtype=_FLOAT64) if count is None else count)
        with np.errstate(over="ignore"):  # what a type cannot hold is infinity in it
            for name, gradient, total in zip(_SUMS, gradients, sums, strict=True):
                if gradient is not None:
                    gradient.view(outputs[name].dtype)[...] = total

    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=("dX", *_SUMS),
        launch=launch,
        over=_OVER,
        orders=dict.fromkeys((*_OVER, "dX"), order),
        scratch=(reduce.nbytes if reduce else 0) + 8 * runs.channels * (len(summed) or len(_SUMS)),
    )
