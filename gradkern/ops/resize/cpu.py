"""The gradient of resizing on the CPU."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cpu.element_types import arithmetic
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.separable import separable_plan
from gradkern.kernels.separable.axis_map import transposed
from gradkern.ops.resize.coordinates import axis_maps, by_onnx_names


def plan(call: Call) -> FlatPlan:
    call = by_onnx_names(call)
    compute = arithmetic(call.inputs["dY"].dtype).type
    return separable_plan(call, [transposed(each, compute) for each in axis_maps(call)])
