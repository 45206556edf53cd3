"""The gradients of average pools on a GPU."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.separable.plan import separable_plan
from gradkern.ops.pooling.average_maps import axis_maps

__all__ = ["plan"]


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    return separable_plan(call, axis_maps(call))
