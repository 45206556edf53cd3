"""The implementation of dB: sums of dY over images and positions, by the streaming kernel of batch norms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device
from gradkern.kernels.channels import streaming_plan
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.policy import Policy
from gradkern.search.plan import PlanCandidate

OWN_KERNELS = True


def configs(problem: Problem, device: Device) -> tuple[Mapping[str, Any], ...]:
    """There is only one."""
    return ({},)


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> PlanCandidate:
    """The kernel for this problem. Raises Refusal if there is none."""
    if problem.gradient != "dB":
        raise Refusal("channel sums are dB")
    inputs, outputs = {"dY": problem.dY}, {"dB": problem.output}
    call = Call("ConvGrad", inputs, outputs, {}, {}, frozenset(), f"cuda:{device.index}", Policy())
    is_channel_axis = [axis == 1 for axis in range(len(problem.dY.shape))]
    make = partial(streaming_plan.plan, call, {"dY": "D", "dB": "bias_sum"}, is_channel_axis, None)
    return PlanCandidate("channel_sums", "gradkern channel sums", {}, make)
