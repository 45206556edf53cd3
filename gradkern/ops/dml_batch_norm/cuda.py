"""DirectML's batch norm gradient on a GPU: one pass over memory for all its outputs."""

from __future__ import annotations

from contextlib import suppress

from gradkern.call import Call, Refusal
from gradkern.channel_kernels import streaming_plan
from gradkern.channel_kernels.channels_last_plan import channels_last_plan, single_pass_partition
from gradkern.channel_kernels.persistent_plan import single_pass_plan
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
        with suppress(Refusal):
            return single_pass_plan(tensors, device, epsilon)
        with suppress(Refusal):
            return channels_last_plan(single_pass_partition(tensors, device, epsilon), device, list(tensors))
    is_kept = [kept == size for size, kept in zip(sizes, statistics, strict=True)]
    return streaming_plan.plan(call, NAMES, is_kept, epsilon)
