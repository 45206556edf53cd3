"""Gated linear units and their gradients on a GPU: elements of the element-wise block."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.elementwise.plan import elementwise_plan


def plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan:
    """The plan of one of the four operators on `call.device`."""
    return elementwise_plan(call, "gradkern.ops.gated.cuda.kernel:build", more=(call.attributes.get("approximate"),))
