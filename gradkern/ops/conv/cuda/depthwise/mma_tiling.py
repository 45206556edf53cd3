"""Configs of the depthwise kernels on tensor cores that fit a problem and a device: those for dW, and for dX and Y."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.depthwise.mma_config import BLOCK, OCTET, SLOTS, WINDOW, MmaConfig
from gradkern.ops.conv.cuda.depthwise.mma_output_config import SLOTS as OUTPUT_SLOTS
from gradkern.ops.conv.cuda.depthwise.mma_output_config import MmaOutputConfig
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem, Plane
from gradkern.ops.conv.cuda.depthwise.tiling import REGISTERS, RESERVED, depth_of
from gradkern.ops.conv.geometry import Axes

__all__ = ["output_configs", "weight_configs"]

_NO_ROOM = "its rows have no room in shared memory"
_REGISTERS = 128  # of a thread, at most
_MANY, _FEW = 32, 16  # channels of a block
_ROWS = {_MANY: (4, 3, 2), _FEW: (3, 2)}
"""Rows of an output that such a block may process at a time, fastest first."""


def weight_configs(problem: DepthwiseProblem, device: Device) -> Iterator[MmaConfig]:
    """Configs for dW that fit, with many channels in a block first. Raises Refusal if there is none."""
    geometry, across = problem.geometry, SLOTS * BLOCK
    _check(problem, device)
    made = MmaConfig(
        problem.dtype,
        problem.channels,
        _MANY,
        _pair(geometry.spatial),
        _pair(geometry.out),
        _pair(geometry.kernel),
        _pair(geometry.pads_begin),
        _without_channel(problem.X),
        _without_channel(problem.dY),
        problem.W_strides,
    )
    if not made.sides or made.sides * round_up(made.X[1], 2) > across or made.begins[1] > across:
        raise Refusal(f"tensor cores take rows of up to {across} columns")
    found = [config for channels in (_MANY, _FEW) if _fits(config := replace(made, channels=channels), device)]
    if not found:
        raise Refusal(_NO_ROOM)
    yield from (replace(config, blocks_per_processor=_resident(config, device)) for config in found)


def output_configs(problem: DepthwiseProblem, device: Device) -> Iterator[MmaOutputConfig]:
    """Configs for dX or Y that fit, the fastest predicted first. Raises Refusal if there is none."""
    geometry, of_dX = problem.geometry, problem.gradient == "dX"
    _check(problem, device)
    out, data, kernel, pads = map(_pair, (geometry.out, geometry.spatial, geometry.kernel, geometry.pads_begin))
    begins = (kernel[0] - 1 - pads[0], kernel[1] - 1 - pads[1]) if of_dX else pads
    if any(not 0 <= begin < taps for begin, taps in zip(begins, kernel, strict=True)):
        raise Refusal("tensor cores take pads smaller than the filter")
    X, dY = _without_channel(problem.X), _without_channel(problem.dY)
    made = MmaOutputConfig(
        "dX" if of_dX else "Y",
        problem.dtype,
        problem.channels,
        _MANY,
        out if of_dX else data,
        data if of_dX else out,
        kernel,
        begins,
        dY if of_dX else X,
        X if of_dX else dY,
        problem.W_strides,
        problem.bias_stride,
        _ROWS[_MANY][0],
    )
    if not made.sides:
        raise Refusal(f"tensor cores take rows of up to {OUTPUT_SLOTS * BLOCK} columns")
    # many channels make long accesses, few leave less of the last block idle
    few_first = 7 * round_up(problem.channels, _MANY) > 8 * round_up(problem.channels, _FEW)
    found: list[MmaOutputConfig] = []
    for channels in (_FEW, _MANY) if few_first else (_MANY, _FEW):
        each = (replace(made, channels=channels, rows=rows) for rows in _ROWS[channels])
        found += [config for config in each if config.moved <= config.threads and _fits(config, device)][:1]
    if not found:
        raise Refusal(_NO_ROOM)
    yield from (replace(config, blocks_per_processor=_resident(config, device)) for config in found)


def _fits(config: MmaConfig | MmaOutputConfig, device: Device) -> bool:
    return config.shared_bytes <= device.shared_bytes


def _resident(config: MmaConfig | MmaOutputConfig, device: Device) -> int:
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
