"""The gradients of gathers on a GPU: sums of rows with equal keys, of the segment block."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.segments.plan import Keys, segments_plan
from gradkern.ops.gather.keys import gather_of


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    """The plan of one of the gradients on `call.device`."""
    gather = gather_of(call)
    keys = Keys(gather.sizes, gather.strides, gather.bounds, gather.steps, gather.dropped)
    builder = "gradkern.ops.gather.cuda.kernel:build"
    return segments_plan(call, builder, gather.source, keys, gather.count, gather.rows, gather.columns)
