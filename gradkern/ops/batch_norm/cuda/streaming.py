"""Candidates of gradkern's own: the streaming kernel, one pass for the sums and one, in reverse order, for dX.

The two passes are one launch, with a grid-wide barrier for the sums, or two launches with separate configs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.cuda.device import Device
from gradkern.kernels.channels.streaming_candidate import StreamingCandidate
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.ops.batch_norm.cuda.sync import NAMES

__all__ = ["OWN_KERNELS", "build", "configs"]

OWN_KERNELS = True


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """The kernel in one launch, and, if it has two passes, in two."""
    yield {"launches": 1}
    if problem.dX is not None:
        yield {"launches": 2}


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> StreamingCandidate:
    """The candidate of a config."""
    launches = config["launches"]
    name = f"streaming_{launches}_launches" if launches > 1 else "streaming_1_launch"
    return StreamingCandidate(
        name,
        "gradkern streaming",
        config,
        device,
        problem.given,
        problem.wanted,
        NAMES,
        problem.elements,
        launches,
        problem.activation,
    )
