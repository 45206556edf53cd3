"""The implementation of a depthwise convolution, its dX and dW, on tensor cores: see `mma_kernel` for dW and
`mma_output_kernel` for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.depthwise.mma_config import BLOCK, OCTET, WINDOW, MmaOutputConfig, MmaWeightConfig
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem, Plane
from gradkern.ops.conv.cuda.depthwise.tiling import REGISTERS, RESERVED, depth_of
from gradkern.ops.conv.cuda.launch_candidate import LaunchCandidate, runs_of_rows
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Axes

OWN_KERNELS = True
_WEIGHTS = "gradkern.ops.conv.cuda.depthwise.mma_kernel:build"
_OUTPUT = "gradkern.ops.conv.cuda.depthwise.mma_output_kernel:build"

_START = 3  # cost of a run's start and end, in steps
_WAVES = 4  # of blocks, at most
_REGISTERS = 128  # of a thread, at most
_MANY, _FEW = 32, 16  # channels of a block
_ROWS = {_MANY: (4, 3, 2), _FEW: (3, 2)}
"""Rows of an output that such a block may process at a time, fastest first."""


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """With more and with fewer channels in a block; of an output, also its rows at a time. Raises Refusal if there is
    none.
    """
    return map(_recipe, fitting(DepthwiseProblem.of(problem), device))


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> LaunchCandidate:
    """The kernel in this config. Raises Refusal if it does not fit."""
    depthwise = DepthwiseProblem.of(problem)
    for each in fitting(depthwise, device):
        if _recipe(each) == config:
            name, images, of = f"depthwise_mma_{each.channels}_channels", depthwise.images, "gradkern depthwise"
            if isinstance(each, MmaWeightConfig):
                shares, origin = partial(runs_of_rows, each, images), f"{of} on tensor cores"
                return LaunchCandidate(_WEIGHTS, each, device, images, shares, name, origin, config)
            shares, origin = partial(_shares, each, images), f"{of} outputs on tensor cores"
            return LaunchCandidate(_OUTPUT, each, device, images, shares, f"{name}_{each.rows}_rows", origin, config)
    raise Refusal(f"no kernel takes {' and '.join(f'{value} {name}' for name, value in config.items())} here")


def _recipe(config: MmaWeightConfig | MmaOutputConfig) -> Mapping[str, Any]:
    rows = {} if isinstance(config, MmaWeightConfig) else {"rows": config.rows}
    return {"channels": config.channels, **rows}


def fitting(problem: DepthwiseProblem, device: Device) -> Iterator[MmaWeightConfig | MmaOutputConfig]:
    """The configs that fit, the fastest predicted first. Raises Refusal if there is none."""
    geometry = problem.geometry
    _check(problem, device)
    data, out, kernel, begins = map(_pair, (geometry.spatial, geometry.out, geometry.kernel, geometry.pads_begin))
    X, dY = (data, _without_channel(problem.X)), (out, _without_channel(problem.dY))
    if problem.gradient == "dX":
        begins = kernel[0] - 1 - begins[0], kernel[1] - 1 - begins[1]
    (source, source_strides), (grid, grid_strides) = (dY, X) if problem.gradient == "dX" else (X, dY)
    made: dict[str, Any] = {
        "dtype": problem.dtype,
        "total_channels": problem.channels,
        "channels": _MANY,
        "source": source,
        "grid": grid,
        "taps": kernel,
        "begins": begins,
        "source_strides": source_strides,
        "grid_strides": grid_strides,
        "filter_strides": problem.W_strides,
    }
    found: list[MmaWeightConfig] | list[MmaOutputConfig]
    if problem.gradient == "dW":
        found = _weight_configs(MmaWeightConfig(**made), device)
    else:
        rows, bias_stride = _ROWS[_MANY][0], problem.bias_stride
        of_output = MmaOutputConfig(**made, gradient=problem.gradient, rows=rows, bias_stride=bias_stride)
        found = _output_configs(of_output, device)
    if not found:
        raise Refusal("its rows have no room in shared memory")
    yield from (replace(config, blocks_per_processor=_resident(config, device)) for config in found)


def _weight_configs(made: MmaWeightConfig, device: Device) -> list[MmaWeightConfig]:
    """With many channels in a block first."""
    across = made.slots * BLOCK
    if not made.sides or made.sides * round_up(made.source[1], 2) > across or made.begins[1] > across:
        raise Refusal(f"tensor cores take rows of up to {across} columns")
    each = (replace(made, channels=channels) for channels in (_MANY, _FEW))
    return [config for config in each if config.shared_bytes <= device.shared_bytes]


def _output_configs(made: MmaOutputConfig, device: Device) -> list[MmaOutputConfig]:
    if any(not 0 <= begin < taps for begin, taps in zip(made.begins, made.taps, strict=True)):
        raise Refusal("tensor cores take pads smaller than the filter")
    if not made.sides:
        raise Refusal(f"tensor cores take rows of up to {made.slots * BLOCK} columns")
    # many channels make long accesses, few leave less of the last block idle
    few_first = 7 * round_up(made.total_channels, _MANY) > 8 * round_up(made.total_channels, _FEW)
    found: list[MmaOutputConfig] = []
    for channels in (_FEW, _MANY) if few_first else (_MANY, _FEW):
        each = (replace(made, channels=channels, rows=rows) for rows in _ROWS[channels])
        found += [
            config for config in each if config.moved <= config.threads and config.shared_bytes <= device.shared_bytes
        ][:1]
    return found


def _resident(config: MmaWeightConfig | MmaOutputConfig, device: Device) -> int:
    """The number of resident blocks of a multiprocessor."""
    by_memory = device.shared_bytes // (config.shared_bytes + RESERVED)
    return max(1, min(by_memory, REGISTERS // (_REGISTERS * config.threads)))


def _check(problem: DepthwiseProblem, device: Device) -> None:
    """Raises Refusal for problems that no kernel on tensor cores takes."""
    geometry = problem.geometry
    if problem.dtype not in ("float16", "bfloat16") or not problem.channels_last:
        raise Refusal("tensor cores take channels-last arrays of 16-bit types")
    if not depth_of(problem).single:
        raise Refusal("tensor cores take one or two spatial axes")
    if device.capability < (8, 0):
        raise Refusal("tensor cores of this device do not have these products")
    strides = (*_without_channel(problem.X), *_without_channel(problem.dY))
    aligned = min(problem.X.alignment, problem.dY.alignment) >= 16
    if problem.channels % OCTET or not aligned or any(each % 16 for each in strides):
        raise Refusal("tensor cores take channels in vectors of 8, at multiples of 16 bytes")
    if geometry.strides != (1, 1) or geometry.dilations != (1, 1):
        raise Refusal("tensor cores take no stride and no dilation")
    if geometry.kernel[1] > WINDOW - BLOCK + 1 or geometry.kernel[0] > 8:
        raise Refusal(f"tensor cores take up to 8x{WINDOW - BLOCK + 1} taps")


def _pair(values: Axes) -> tuple[int, int]:
    rows, columns = values
    return rows, columns


def _without_channel(plane: Plane) -> tuple[int, int, int]:
    image, _, row, column = plane.strides
    return image, row, column


def _shares(config: MmaOutputConfig, images: int, resident: int) -> tuple[int, int, int]:
    """Blocks take channels and a run of the output rows of all images."""
    if not resident:
        raise Refusal(f"no block of {config.shared_bytes} bytes of shared memory fits")
    chunks = _chunks(config, images, resident)
    return chunks, config.groups * chunks, 0


def _chunks(config: MmaOutputConfig, images: int, resident: int) -> int:
    """The number of runs of the rows that minimises the steps of all blocks."""
    steps = config.steps(images)

    def taken(chunks: int) -> int:
        waves = -(-config.groups * chunks // resident)
        return waves * (-(-steps // chunks) + config.warm_steps + _START)

    return min(range(1, min(steps, max(1, _WAVES * resident // config.groups)) + 1), key=taken)
