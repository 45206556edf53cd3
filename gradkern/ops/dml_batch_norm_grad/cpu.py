"""DirectML's batch norm gradient on the CPU: one pass over memory for all its outputs."""

from __future__ import annotations

import numpy as np

from gradkern.call import Call
from gradkern.cpu.channels import Reduce, Runs, memory_order
from gradkern.cpu.staging import FlatPlan

__all__ = ["plan"]

_DATA = ("Input", "InputGradient", "OutputGradient")
_OUTPUTS = ("OutputGradient", "OutputScaleGradient", "OutputBiasGradient")


def plan(call: Call) -> FlatPlan:
    Input = call.inputs["Input"]
    sizes, statistics = Input.shape, call.inputs["Mean"].shape
    is_kept = [kept == size for size, kept in zip(sizes, statistics, strict=True)]
    order = memory_order(Input, is_kept)
    axes = range(len(sizes)) if order is None else order
    runs = Runs.of([sizes[axis] for axis in axes], [is_kept[axis] for axis in axes])
    dtype = Input.dtype
    wanted = (dtype if name in call.outputs else None for name in _OUTPUTS)
    kernel = Reduce(runs, dtype, (dtype, dtype, dtype), float(call.attributes["Epsilon"]), *wanted)

    def launch(read: list[np.ndarray], write: list[np.ndarray | None]) -> None:
        Input, InputGradient, Mean, Variance, Scale = read
        kernel(InputGradient, Input, Scale, Mean, Variance, *write)

    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=_OUTPUTS,
        launch=launch,
        orders=dict.fromkeys(_DATA, order),
        scratch=kernel.nbytes,
    )
