"""The candidate for dB: sums of dY over images and positions, by the streaming kernel of batch norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.kernels.channels.streaming_candidate import StreamingCandidate
from gradkern.ops.conv.cuda.problem import BiasProblem, Problem

__all__ = ["OWN_KERNELS", "candidates", "rebuild"]

OWN_KERNELS = True


def candidates(problem: Problem | BiasProblem, device: Device) -> Iterator[StreamingCandidate]:
    """The kernel for this problem. Raises Refusal if there is none."""
    yield rebuild(problem, device, {})


def rebuild(problem: Problem | BiasProblem, device: Device, recipe: Mapping[str, Any]) -> StreamingCandidate:
    """The candidate with this recipe: there is only one."""
    if not isinstance(problem, BiasProblem):
        raise Refusal("channel sums are dB")
    names = {"dY": "D", "dB": "bias_sum"}
    inputs, outputs = {"dY": problem.dY}, {"dB": problem.dB}
    return StreamingCandidate("channel_sums", "gradkern channel sums", recipe, device, inputs, outputs, names)
