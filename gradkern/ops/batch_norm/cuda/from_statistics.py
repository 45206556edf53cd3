"""Batch norm of one part of a batch on a GPU, with given statistics: one launch."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.channels import streaming_plan
from gradkern.kernels.channels.streaming_plan import StreamingPlan

__all__ = ["plan"]

_NAMES = {  # contract name -> the kernel's
    **{name: name for name in ("X", "scale", "Y")},
    "B": "bias",
    "saved_mean": "mean",
    "saved_inv_std": "deviation",
}


def plan(call: Call) -> StreamingPlan | EmptyPlan:
    return streaming_plan.plan(call, _NAMES, [axis == 1 for axis in range(len(call.inputs["X"].shape))], None)
