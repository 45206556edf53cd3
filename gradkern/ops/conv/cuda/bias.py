"""The implementation of dB: sums of dY over images and positions, by the streaming kernel of batch norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.kernels.channels.streaming_candidate import StreamingCandidate
from gradkern.ops.conv.cuda.problem import BiasProblem, Problem

__all__ = ["OWN_KERNELS", "build", "configs"]

OWN_KERNELS = True


def configs(problem: Problem | BiasProblem, device: Device) -> tuple[Mapping[str, Any], ...]:
    """There is only one."""
    return ({},)


def build(problem: Problem | BiasProblem, device: Device, config: Mapping[str, Any]) -> StreamingCandidate:
    """The kernel for this problem. Raises Refusal if there is none."""
    if not isinstance(problem, BiasProblem):
        raise Refusal("channel sums are dB")
    names = {"dY": "D", "dB": "bias_sum"}
    inputs, outputs = {"dY": problem.dY}, {"dB": problem.dB}
    return StreamingCandidate("channel_sums", "gradkern channel sums", config, device, inputs, outputs, names)
