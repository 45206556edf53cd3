"""The gradients of softmax on a GPU: rows of the row block."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.rows.plan import RowArrays, rows_plan
from gradkern.ops.dropout import factors


def plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan:
    """The plan of one of the gradients on `call.device`."""
    arrays = RowArrays(inputs=tuple(call.inputs), outputs=tuple(call.outputs))
    masked = factors if "mask" in call.inputs else None
    first, last = len(call.axes["rows"]), len(call.axes["rows"]) + len(call.axes["columns"])
    if call.operator.endswith("_13"):
        last = first + 1
    return rows_plan(call, "gradkern.ops.softmax.cuda.kernel:build", arrays, first, last, masked)
