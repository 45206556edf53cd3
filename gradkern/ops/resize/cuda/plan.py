"""The gradient of resizing on a GPU."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.separable.plan import separable_plan
from gradkern.ops.resize.coordinates import axis_maps, by_onnx_names


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    call = by_onnx_names(call)
    return separable_plan(call, axis_maps(call))
