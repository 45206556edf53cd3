"""DirectML's batch norm gradient on the CPU: one pass over memory for all its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cpu.batch_norm import Reduce
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs

__all__ = ["plan"]

_SUMS = ("OutputScaleGradient", "OutputBiasGradient")
_OVER = ("InputGradient", "Input")


def plan(call: Call) -> FlatPlan:
    Input = call.inputs["Input"]
    sizes, statistics = Input.shape, call.inputs["Mean"].shape
    order, runs = Runs.of_tensor(Input, [count == size for size, count in zip(sizes, statistics, strict=True)])

    data = argument_type(call, "Input")
    totals = [Input.dtype if name in call.outputs else None for name in _SUMS]
    dX = argument_type(call, "OutputGradient", _OVER, order)
    kernel = Reduce(runs, (data,) * 5, dX, totals, float(call.attributes["Epsilon"]))

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        Input, InputGradient, Mean, Variance, Scale = read
        dX, *totals = write
        kernel((InputGradient, Input, Scale, Mean, Variance), dX, totals)

    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=("OutputGradient", *_SUMS),
        launch=launch,
        over=_OVER,
        orders=dict.fromkeys((*_OVER, "OutputGradient"), order),
        scratch=kernel.nbytes,
    )
