"""Candidates for the dW of a depthwise convolution on tensor cores, see `mma_kernel`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.depthwise.mma_tiling import configs
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
from gradkern.ops.conv.cuda.launch_candidate import MmaCandidate
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.candidate import with_recipe

__all__ = ["OWN_KERNELS", "DepthwiseMma", "candidates", "rebuild"]

OWN_KERNELS = True


def candidates(problem: Problem, device: Device) -> Iterator[DepthwiseMma]:
    """The kernel with more and with fewer channels in a block. Raises Refusal if there is no config."""
    depthwise = DepthwiseProblem.of(problem)
    for config in configs(depthwise, device):
        name = f"depthwise_mma_{config.channels}_channels"
        yield DepthwiseMma(config, device, depthwise.images, name, {"channels": config.channels})


def rebuild(problem: Problem, device: Device, recipe: Mapping[str, Any]) -> DepthwiseMma:
    """The candidate that had this recipe."""
    return with_recipe(candidates(problem, device), recipe, f"no kernel takes {recipe['channels']} channels here")


class DepthwiseMma(MmaCandidate):
    """Blocks take channels and a run of the rows of all images."""

    builder = "gradkern.ops.conv.cuda.depthwise.mma_kernel:build"
    origin = "gradkern depthwise on tensor cores"
