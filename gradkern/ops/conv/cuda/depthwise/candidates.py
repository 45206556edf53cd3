"""The implementation of a depthwise convolution, its dX and dW, by the kernels of `kernel`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.conv.cuda.depthwise import tiling
from gradkern.ops.conv.cuda.depthwise.config import DepthwiseConfig
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
from gradkern.ops.conv.cuda.launch_candidate import LaunchCandidate
from gradkern.ops.conv.cuda.problem import Problem

OWN_KERNELS = True
_BUILDER = "gradkern.ops.conv.cuda.depthwise.kernel:build"

_START = 0.5  # cost of a block's start and end, in tiles
_ALONE = 3  # warps for half of a multiprocessor's throughput


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """The two most promising configs, and sometimes a third. Raises Refusal if there is none."""
    for config in tiling.configs(DepthwiseProblem.of(problem), device, most=2):
        yield {
            "held": [config.rows.held, config.columns.held],
            "threads": [config.rows.threads, config.columns.threads],
            "channels": config.channels,
            "width": config.width,
            "around": any(config.shifted),
            "stages": config.stages,
            "blocks": config.blocks_per_processor,
        }


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> LaunchCandidate:
    """The kernel in this config."""
    depthwise = DepthwiseProblem.of(problem)
    names = ("held", "threads", "channels", "stages", "width", "around")
    made = tiling.config_of(depthwise, device=device, **{name: config[name] for name in names})
    (rows, columns), (down, across) = config["held"], config["threads"]
    name = (
        f"depthwise_{rows}x{columns}{f'x{made.width}' if made.width > 1 else ''}"
        f"_threads{made.lanes}x{down}x{across}_stages{made.stages}{'_around' if any(made.shifted) else ''}"
    )
    made, images = replace(made, blocks_per_processor=config["blocks"]), depthwise.images
    shares = partial(_shares, made, device, images)
    return LaunchCandidate(_BUILDER, made, device, images, shares, name, "gradkern depthwise", config)


def _shares(config: DepthwiseConfig, device: Device, images: int, resident: int) -> tuple[int, int, int]:
    """Blocks take channels, tiles of their planes and a share of the images."""
    if not resident:
        raise Refusal(f"no block of {config.threads} threads and {config.shared_bytes} bytes of shared memory fits")
    chunks = _chunks(config, images * config.units, resident, device.processors)
    sums = 0 if config.writes_tiled else chunks * config.total_channels * config.all_taps
    return chunks, min(config.parts * chunks, resident), sums * ITEMSIZE[config.compute]


def _chunks(config: DepthwiseConfig, units: int, resident: int, processors: int) -> int:
    """The number of parts of the tiles of all images: enough to fill the device, with all blocks ending together."""
    most = min(units, max(1, (4 * resident if config.writes_tiled else resident) // config.parts))
    warps = -(-config.threads // 32)
    ends = _START
    if config.gradient == "dW":  # partial sums are written and read
        ends += 2 * config.channels * config.taps * ITEMSIZE[config.compute] / config.stage_bytes

    def seconds(chunks: int) -> float:
        """Time of the busiest multiprocessor, in tiles; longer if it has few warps at a time."""
        blocks = -(-config.parts * chunks // processors)
        warps_at_once = min(blocks, resident // processors) * warps
        return blocks * (-(-units // chunks) + ends) * (1 + _ALONE / warps_at_once)

    return min(range(1, most + 1), key=seconds)
