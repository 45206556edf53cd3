"""The implementation of a depthwise convolution, its dX and dW, on tensor cores: see `mma_kernel` for dW and
`mma_output_kernel` for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.depthwise.mma_config import MmaConfig
from gradkern.ops.conv.cuda.depthwise.mma_output_config import MmaOutputConfig
from gradkern.ops.conv.cuda.depthwise.mma_tiling import output_configs, weight_configs
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
from gradkern.ops.conv.cuda.launch_candidate import LaunchCandidate, MmaCandidate
from gradkern.ops.conv.cuda.problem import Problem

__all__ = ["OWN_KERNELS", "DepthwiseMma", "DepthwiseMmaOutput", "build", "configs"]

OWN_KERNELS = True

_START = 3  # cost of a run's start and end, in steps
_WAVES = 4  # of blocks, at most


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """With more and with fewer channels in a block; of an output, also its rows at a time. Raises Refusal if there is
    none.
    """
    return map(_recipe, _configs(DepthwiseProblem.of(problem), device))


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> DepthwiseMma | DepthwiseMmaOutput:
    """The kernel in this config. Raises Refusal if it does not fit."""
    depthwise = DepthwiseProblem.of(problem)
    for each in _configs(depthwise, device):
        if _recipe(each) == config:
            name = f"depthwise_mma_{each.channels}_channels"
            if isinstance(each, MmaConfig):
                return DepthwiseMma(each, device, depthwise.images, name, config)
            return DepthwiseMmaOutput(each, device, depthwise.images, f"{name}_{each.rows}_rows", config)
    raise Refusal(f"no kernel takes {' and '.join(f'{value} {name}' for name, value in config.items())} here")


def _configs(problem: DepthwiseProblem, device: Device) -> Iterator[MmaConfig] | Iterator[MmaOutputConfig]:
    return (weight_configs if problem.gradient == "dW" else output_configs)(problem, device)


def _recipe(config: MmaConfig | MmaOutputConfig) -> Mapping[str, Any]:
    rows = {} if isinstance(config, MmaConfig) else {"rows": config.rows}
    return {"channels": config.channels, **rows}


class DepthwiseMma(MmaCandidate):
    """Of dW. Blocks take channels and a run of the rows of all images."""

    builder = "gradkern.ops.conv.cuda.depthwise.mma_kernel:build"
    origin = "gradkern depthwise on tensor cores"


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
