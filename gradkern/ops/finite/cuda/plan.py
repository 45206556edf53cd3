"""Whether elements are finite, and the norm of all, on a GPU."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.elementwise.plan import elementwise_plan, totals_plan

KERNELS = "gradkern.ops.finite.cuda.kernel:"


def plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan | LaunchesPlan:
    """The plan of one of the three operators on `call.device`."""
    if call.operator == "IsFinite":
        return elementwise_plan(call, f"{KERNELS}build")
    return totals_plan(call, f"{KERNELS}build_parts", f"{KERNELS}build_sum", call.operator == "ReduceAllL2")
