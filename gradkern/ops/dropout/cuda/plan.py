"""The gradients of masks on a GPU: elements of the element-wise block."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.elementwise.plan import elementwise_plan
from gradkern.ops.dropout import factors


def plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan:
    """The plan of one of the gradients on `call.device`."""
    bits = "mask" if call.operator.startswith("Bitmask") else ""
    return elementwise_plan(call, "gradkern.ops.dropout.cuda.kernel:build", factors, bits)
