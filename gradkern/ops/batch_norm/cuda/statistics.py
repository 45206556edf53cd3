"""The statistics of one part of a batch on a GPU, as one message, with one launch that reads the part once."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.channels import streaming_plan
from gradkern.kernels.channels.streaming_plan import StreamingPlan
from gradkern.ops.batch_norm.cuda.packed import PackedPlan, unpacked

__all__ = ["plan"]


def plan(call: Call) -> PackedPlan | EmptyPlan:
    """Raises Refusal for arrays with gaps."""
    X, message = call.inputs["X"], call.outputs["part_statistics"]
    require_flat("part_statistics", message)
    if not X.size:
        return EmptyPlan("empty", 0, device_of(call), (message.nbytes,))
    inner, offset = unpacked(call, "part_statistics", "mean", "deviation")
    names = {name: name for name in ("X", "mean", "deviation")}
    is_channel_axis = [axis == 1 for axis in range(len(X.shape))]
    made = streaming_plan.plan(inner, names, is_channel_axis, None, X.size // X.shape[1], settings={}, message=True)
    assert isinstance(made, StreamingPlan)  # because the part is not empty
    return PackedPlan(made, offset)
