"""The gradients of average pools on the CPU."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cpu.element_types import arithmetic
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.separable import separable_plan
from gradkern.kernels.separable.axis_map import transposed
from gradkern.ops.pooling.average_maps import axis_maps


def plan(call: Call) -> FlatPlan:
    compute = arithmetic(call.inputs["dY"].dtype).type
    return separable_plan(call, [transposed(each, compute) for each in axis_maps(call)])
