"""DirectML's batch norm gradient on a GPU: one pass over memory for all its outputs."""

from __future__ import annotations

from contextlib import suppress

from gradkern.call import Call, Refusal
from gradkern.channel_kernels import channels_last_plan, persistent_plan, streaming_plan
from gradkern.channel_kernels.streaming_plan import StreamingPlan
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan, device_of

__all__ = ["NAMES", "plan"]

NAMES = {  # contract name -> the kernel's
    "Input": "X",
    "InputGradient": "D",
    "Mean": "mean",
    "Variance": "deviation",
    "Scale": "scale",
    "OutputGradient": "dX",
    "OutputScaleGradient": "scale_sum",
    "OutputBiasGradient": "bias_sum",
}


def plan(call: Call) -> StreamingPlan | LaunchPlan | EmptyPlan:
    """Statistics per channel may have a kernel that keeps channels on the chip; others take the streaming kernel."""
    sizes, statistics = call.inputs["Input"].shape, call.inputs["Mean"].shape
    epsilon = float(call.attributes["Epsilon"])
    per_channel = len(sizes) > 1 and statistics == (1, sizes[1], *(1 for _ in sizes[2:]))
    if per_channel and call.outputs and call.inputs["Input"].size:
        tensors = {NAMES[name]: (name, tensor) for name, tensor in {**call.inputs, **call.outputs}.items()}
        device = device_of(call)
        for on_chip in (persistent_plan, channels_last_plan):
            with suppress(Refusal):
                return on_chip.single_pass_plan(tensors, device, epsilon)
    is_kept = [kept == size for size, kept in zip(sizes, statistics, strict=True)]
    return streaming_plan.plan(call, NAMES, is_kept, epsilon)
