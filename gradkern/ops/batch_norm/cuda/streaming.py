"""Candidates of gradkern's own: the walk over channels, once for the sums and once, the other way, for dX.

The two passes are one launch, in which all blocks wait for the sums, or a launch each, which can be shaped apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Tensor
from gradkern.channel_kernels.candidate import ChannelWalk
from gradkern.cuda.device import Device
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.ops.batch_norm.cuda.sync import NAMES

__all__ = ["candidates", "rebuild"]

_INPUTS = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
_OUTPUTS = ("dX", "dScale", "dBias")


def candidates(problem: Problem, device: Device) -> Iterator[ChannelWalk]:
    """The kernel in one launch, and where it has two passes in two."""
    yield rebuild(problem, device, {"launches": 1})
    if problem.dX is not None:
        yield rebuild(problem, device, {"launches": 2})


def rebuild(problem: Problem, device: Device, recipe: Mapping[str, Any]) -> ChannelWalk:
    """The candidate that had this recipe."""
    launches = recipe["launches"]
    name = f"channels_{launches}_launches" if launches > 1 else "channels_1_launch"
    inputs: dict[str, Tensor] = dict(zip(_INPUTS, problem.inputs, strict=True))
    outputs = {name: tensor for name in _OUTPUTS if (tensor := getattr(problem, name)) is not None}
    return ChannelWalk(name, "gradkern channels", recipe, device, inputs, outputs, NAMES, problem.elements, launches)
