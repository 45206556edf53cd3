"""Candidates for a depthwise convolution and its dX on tensor cores, see `mma_output_kernel`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, kernel_of_config
from gradkern.ops.conv.cuda.depthwise.config import ARGUMENTS
from gradkern.ops.conv.cuda.depthwise.mma_output_config import MmaOutputConfig
from gradkern.ops.conv.cuda.depthwise.mma_tiling import output_configs
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.candidate import Note, Unfit, with_recipe

__all__ = ["OWN_KERNELS", "DepthwiseMmaOutput", "candidates", "rebuild"]

OWN_KERNELS = True

_START = 3  # cost of a run's start and end, in steps
_WAVES = 4  # of blocks, at most


def candidates(problem: Problem, device: Device) -> Iterator[DepthwiseMmaOutput]:
    """The kernel with many and with few channels in a block. Raises Unfit if there is no config."""
    depthwise = DepthwiseProblem.of(problem)
    for config in output_configs(depthwise, device):
        yield DepthwiseMmaOutput(config, device, depthwise.images)


def rebuild(problem: Problem, device: Device, recipe: Mapping[str, Any]) -> DepthwiseMmaOutput:
    """The candidate that had this recipe."""
    missing = f"no kernel takes {recipe['channels']} channels and {recipe['rows']} rows at a time here"
    return with_recipe(candidates(problem, device), recipe, missing)


class DepthwiseMmaOutput:
    """One launch. Blocks take channels and a run of the output rows of all images."""

    origin = "gradkern depthwise outputs on tensor cores"
    notes: frozenset[Note] = frozenset({"compiles_once"})
    workspace = 0

    def __init__(self, config: MmaOutputConfig, device: Device, images: int) -> None:
        self.config, self.device, self.images = config, device, images
        self.name = f"depthwise_mma_{config.channels}_channels_{config.rows}_rows"
        self.recipe = {"channels": config.channels, "rows": config.rows}
        self._launch: Launch | None = None

    def prepare(self) -> None:
        if self._launch is not None:
            return
        config = self.config
        builder = "gradkern.ops.conv.cuda.depthwise.mma_output_kernel:build"
        kernel = kernel_of_config(self.device, builder, config, arguments=len(ARGUMENTS))
        resident = kernel.resident_blocks(config.threads)
        if not resident:
            raise Unfit(f"no block of {config.shared_bytes} bytes of shared memory fits")
        chunks = _chunks(config, self.images, resident)
        arguments = [{"images": self.images, "chunks": chunks}.get(name, 0) for name in ARGUMENTS]
        addresses = range(ARGUMENTS.index("images"))
        self._launch = Launch(kernel, config.groups * chunks, config.threads, arguments, addresses)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self._launch is None:
            raise RuntimeError("prepare has not been called")
        (source, filters, *bias), (output,) = inputs, outputs
        self._launch((source, output, filters, bias[0] if bias else 0, 0), stream)


def _chunks(config: MmaOutputConfig, images: int, resident: int) -> int:
    """The number of runs of the rows that minimises the steps of all blocks."""
    steps = config.steps(images)

    def taken(chunks: int) -> int:
        waves = -(-config.groups * chunks // resident)
        return waves * (-(-steps // chunks) + config.warm_steps + _START)

    return min(range(1, min(steps, max(1, _WAVES * resident // config.groups)) + 1), key=taken)
