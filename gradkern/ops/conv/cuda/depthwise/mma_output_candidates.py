"""Candidates for a depthwise convolution and its dX on tensor cores, see `mma_output_kernel`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.depthwise.mma_output_config import MmaOutputConfig
from gradkern.ops.conv.cuda.depthwise.mma_tiling import output_configs
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
from gradkern.ops.conv.cuda.launch_candidate import LaunchCandidate
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.candidate import with_recipe

__all__ = ["OWN_KERNELS", "DepthwiseMmaOutput", "candidates", "rebuild"]

OWN_KERNELS = True

_START = 3  # cost of a run's start and end, in steps
_WAVES = 4  # of blocks, at most


def candidates(problem: Problem, device: Device) -> Iterator[DepthwiseMmaOutput]:
    """The kernel with many and with few channels in a block. Raises Refusal if there is no config."""
    depthwise = DepthwiseProblem.of(problem)
    for config in output_configs(depthwise, device):
        name = f"depthwise_mma_{config.channels}_channels_{config.rows}_rows"
        recipe = {"channels": config.channels, "rows": config.rows}
        yield DepthwiseMmaOutput(config, device, depthwise.images, name, recipe)


def rebuild(problem: Problem, device: Device, recipe: Mapping[str, Any]) -> DepthwiseMmaOutput:
    """The candidate that had this recipe."""
    missing = f"no kernel takes {recipe['channels']} channels and {recipe['rows']} rows at a time here"
    return with_recipe(candidates(problem, device), recipe, missing)


class DepthwiseMmaOutput(LaunchCandidate[MmaOutputConfig]):
    """Blocks take channels and a run of the output rows of all images."""

    builder = "gradkern.ops.conv.cuda.depthwise.mma_output_kernel:build"
    origin = "gradkern depthwise outputs on tensor cores"

    def shares(self, resident: int) -> tuple[int, int, int]:
        if not resident:
            raise Refusal(f"no block of {self.config.shared_bytes} bytes of shared memory fits")
        chunks = _chunks(self.config, self.images, resident)
        return chunks, self.config.groups * chunks, 0


def _chunks(config: MmaOutputConfig, images: int, resident: int) -> int:
    """The number of runs of the rows that minimises the steps of all blocks."""
    steps = config.steps(images)

    def taken(chunks: int) -> int:
        waves = -(-config.groups * chunks // resident)
        return waves * (-(-steps // chunks) + config.warm_steps + _START)

    return min(range(1, min(steps, max(1, _WAVES * resident // config.groups)) + 1), key=taken)
