"""The gradient of resizing on a GPU."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.separable.plan import separable_plan
from gradkern.ops.resize.coordinates import axis_maps, by_onnx_names
from gradkern.ops.resize.cuda.stencil import stencil_plan


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    call = by_onnx_names(call)
    maps = axis_maps(call)
    return stencil_plan(call, maps) or separable_plan(call, maps)
