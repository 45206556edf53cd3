"""The steps of a batch in parts on a GPU, one pass over memory each: sums of a part, and dX from the sums of all."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.channels import streaming_plan
from gradkern.kernels.channels.streaming_plan import StreamingPlan
from gradkern.ops.batch_norm.cuda.packed import PackedPlan, unpacked

__all__ = ["NAMES", "plan"]

NAMES = {  # contract name -> the kernel's
    "dY": "D",
    "X": "X",
    "Scale": "scale",
    "saved_mean": "mean",
    "saved_inv_std": "deviation",
    "B": "bias",
    "Y": "Y",
    "dY2": "D2",
    "dX": "dX",
    "dScale": "scale_sum",
    "dBias": "bias_sum",
    "dZ": "dZ",
}
_TOTALS = {"dScale": "scale_total", "dBias": "bias_total", "counts": "counts"}  # as inputs


def plan(call: Call) -> StreamingPlan | PackedPlan | EmptyPlan:
    """The plan of BatchNormalizationGradSums or BatchNormalizationGradFromSums."""
    names = {**NAMES, **{name: _TOTALS[name] for name in _TOTALS if name in call.inputs}}
    is_channel_axis = [axis == 1 for axis in range(len(call.inputs["X"].shape))]
    if "sums" in call.outputs:
        if not call.inputs["X"].size:
            return EmptyPlan("empty", 0, device_of(call), tuple(each.nbytes for each in call.outputs.values()))
        require_flat("sums", call.outputs["sums"])
        inner, offset = unpacked(call, "sums", "scale_total", "bias_total")
        made = streaming_plan.plan(inner, {**names, **{each: each for each in _TOTALS.values()}}, is_channel_axis, None)
        assert isinstance(made, StreamingPlan)  # because the part is not empty
        return PackedPlan(made, offset)
    elements = call.axes["parts"] if "counts" in call.inputs else call.attributes.get("count")
    return streaming_plan.plan(call, names, is_channel_axis, None, elements)
