"""Candidates of a batch norm: the streaming kernel, one pass for the statistics and one, in reverse order, for Y."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.cuda.device import Device
from gradkern.kernels.channels.streaming_candidate import StreamingCandidate
from gradkern.ops.batch_norm.cuda.problem import ForwardProblem

__all__ = ["OWN_KERNELS", "build", "configs"]

OWN_KERNELS = True

_NAMES = {  # contract name -> the kernel's
    **{name: name for name in ("X", "Z", "Y", "scale", "input_mean", "input_var", "running_mean", "running_var")},
    "B": "bias",
    "saved_mean": "mean",
    "saved_inv_std": "deviation",
}


def configs(problem: ForwardProblem, device: Device) -> Iterator[Mapping[str, Any]]:
    """The kernel in one launch, and, if it has two passes, in two."""
    yield {"launches": 1}
    if "Y" in dict(problem.wanted):
        yield {"launches": 2}


def build(problem: ForwardProblem, device: Device, config: Mapping[str, Any]) -> StreamingCandidate:
    """The candidate of a config."""
    launches = config["launches"]
    bits = "<q" if problem.X.dtype.name == "float64" else "<i"
    values = {"epsilon": problem.epsilon, "momentum": problem.momentum, "correction": problem.correction}
    return StreamingCandidate(
        f"streaming_{launches}_launches" if launches > 1 else "streaming_1_launch",
        "gradkern streaming",
        config,
        device,
        dict(problem.given),
        dict(problem.wanted),
        _NAMES,
        problem.elements,
        launches,
        problem.activation,
        {name: _bits(value, bits) for name, value in values.items()},
    )


def _bits(value: float, integer: str) -> int:
    """The bits of a float, as an integer of its size."""
    return int(struct.unpack(integer, struct.pack("<d" if integer == "<q" else "<f", value))[0])
