"""DirectML's batch norm gradient on a GPU: one pass over memory for all its outputs."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda import channel_plan
from gradkern.cuda.channel_plan import ChannelPlan
from gradkern.cuda.rows import EmptyPlan

__all__ = ["NAMES", "plan"]

NAMES = {  # contract name -> the kernel's
    "Input": "X",
    "InputGradient": "D",
    "Mean": "mean",
    "Variance": "spread",
    "Scale": "scale",
    "OutputGradient": "dX",
    "OutputScaleGradient": "scale_sum",
    "OutputBiasGradient": "bias_sum",
}


def plan(call: Call) -> ChannelPlan | EmptyPlan:
    sizes, statistics = call.inputs["Input"].shape, call.inputs["Mean"].shape
    is_kept = [kept == size for size, kept in zip(sizes, statistics, strict=True)]
    return channel_plan.plan(call, NAMES, is_kept, float(call.attributes["Epsilon"]))
