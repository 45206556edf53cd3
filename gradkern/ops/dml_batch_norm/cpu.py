"""DirectML's batch norm gradients on the CPU: one pass over memory for all outputs; in training two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu.batch_norm import Apply, Reduce
from gradkern.cpu.element_types import arithmetic, array_type
from gradkern.cpu.flat_plan import FlatPlan, Launch, argument_type
from gradkern.cpu.runs import Runs

_SUMS = ("OutputScaleGradient", "OutputBiasGradient")
_OVER = ("InputGradient", "Input")


def plan(call: Call) -> FlatPlan:
    Input, sizes = call.inputs["Input"], call.inputs["Input"].shape
    is_channel = [count == size for size, count in zip(sizes, call.inputs["Mean"].shape, strict=True)]
    order, runs = Runs.of_tensor(Input, is_channel)
    training = call.operator == "DmlBatchNormalizationTrainingGrad"
    if training:
        runs = runs.by_channel(2 * Input.dtype.itemsize)
    dX = argument_type(call, "OutputGradient", _OVER, order)
    launch, scratch = (_training if training else _constant)(call, runs, argument_type(call, "Input"), dX)
    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=("OutputGradient", *_SUMS),
        launch=launch,
        over=_OVER,
        orders=dict.fromkeys((*_OVER, "OutputGradient"), order),
        scratch=scratch,
        repeatable=not training,
        constants=(runs.channel_offsets, runs.reduced_offsets),
    )


def _constant(call: Call, runs: Runs, data: Any, dX_type: Any) -> tuple[Launch, int]:
    """The launch, and the bytes that it allocates."""
    totals = [call.outputs[name].dtype if name in call.outputs else None for name in _SUMS]
    kernel = Reduce(runs, (data,) * 5, dX_type, totals, float(call.attributes["Epsilon"]))

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        Input, InputGradient, Mean, Variance, Scale = read
        dX, *gradients = write
        kernel((InputGradient, Input, Scale, Mean, Variance), dX, gradients)

    return launch, kernel.nbytes


def _training(call: Call, runs: Runs, data: Any, dX_type: Any) -> tuple[Launch, int]:
    """The same. The sums, unless dX is wanted of whole channels, and then dX."""
    compute, wanted = arithmetic(call.inputs["Input"].dtype), "OutputGradient" in call.outputs
    epsilon, kinds = compute.type(call.attributes["Epsilon"]), (*(data,) * 4, array_type(compute))
    totals = [np.dtype(np.float64) if wanted or name in call.outputs else None for name in _SUMS]
    in_one = wanted and runs.whole_channels
    reduce = None if in_one else Reduce(runs, kinds, types.none, totals)
    apply = Apply(runs, kinds, dX_type, in_one) if wanted else None

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        Input, InputGradient, Mean, Variance, Scale = read
        dX, *gradients = write
        with np.errstate(all="ignore"):  # of a variance of 0, or less
            inverse = 1 / np.sqrt(Variance.view(call.inputs["Variance"].dtype).astype(compute) + epsilon)
        arrays = InputGradient, Input, Scale, Mean, inverse
        sums = [None if each is None else np.empty(runs.channels) for each in totals]
        if reduce is not None:
            reduce(arrays, None, sums)
        if apply is not None:
            apply(arrays, sums, dX, runs.count)
        with np.errstate(over="ignore"):  # what a type cannot hold is infinity in it
            for name, gradient, total in zip(_SUMS, gradients, sums, strict=True):
                if gradient is not None:
                    gradient.view(call.outputs[name].dtype)[...] = total

    return launch, (reduce.nbytes if reduce else 0) + 3 * 8 * runs.channels
