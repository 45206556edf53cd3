"""The gradients of softmax on a GPU: rows of the row block."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.rows.plan import RowArrays, rows_plan

__all__ = ["plan"]


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    """The plan of one of the four gradients on `call.device`."""
    arrays = RowArrays(inputs=tuple(call.inputs), outputs=("dX",))
    first, last = len(call.axes["rows"]), len(call.axes["rows"]) + len(call.axes["columns"])
    if call.operator.endswith("_13"):
        last = first + 1
    return rows_plan(call, "gradkern.ops.softmax.cuda.kernel:build", arrays, first, last)
