"""DirectML's gradients of pools on a GPU: that of max pooling by two launches, the indices in scratch memory."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.ops.pooling.cuda import average as averages
from gradkern.ops.pooling.cuda import max as maxima
from gradkern.ops.pooling.directml import average, maximum


def plan(call: Call) -> LaunchPlan | LaunchesPlan | EmptyPlan:
    if "Input" not in call.inputs:
        return averages.plan(average(call))
    first, second = maximum(call)
    gradient = maxima.plan(second)
    if isinstance(gradient, EmptyPlan):
        return gradient
    forward = maxima.plan(first)
    assert isinstance(forward, LaunchPlan)  # where there is a gradient to spread there are windows
    launches, X, dY, dX, indices = (forward.launch, gradient.launch), 0, 1, 2, 3
    places = (X, indices), (dY, indices, dX)
    return LaunchesPlan(gradient.kernel, second.inputs["Indices"].nbytes, launches, places, (0,), device_of(call))
