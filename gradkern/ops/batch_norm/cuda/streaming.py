"""The implementation of gradkern's own for every gradient: the streaming kernel, one pass for the sums and one, in
reverse order, for dX, in one launch with a grid-wide barrier between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gradkern.call import Call
from gradkern.cuda.device import Device
from gradkern.kernels.channels import streaming_plan
from gradkern.ops.batch_norm.cuda.parts import NAMES
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.policy import Policy
from gradkern.search.plan import PlanCandidate

OWN_KERNELS = True


def configs(problem: Problem, device: Device) -> tuple[Mapping[str, Any], ...]:
    """The one there is: it has nothing to say."""
    return ({},)


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> PlanCandidate:
    """The candidate. The order of all additions is fixed."""
    on = f"cuda:{device.index}"
    call = Call("BatchNormalizationGrad", problem.given, problem.wanted, {}, {}, frozenset(), on, Policy())
    is_channel_axis = [axis == 1 for axis in range(len(problem.X.shape))]
    make = partial(
        streaming_plan.plan,
        *(call, NAMES, is_channel_axis, None, problem.elements),
        activation=problem.activation,
    )
    return PlanCandidate("streaming", "gradkern streaming", {}, make)
