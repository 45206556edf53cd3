"""From a call to a launch of the separable block: the gradient dX of an input from dY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.separable.axis_map import AxisMap, most_outputs, reach, simplified
from gradkern.kernels.separable.config import (
    ARGUMENTS,
    COLUMNS,
    LINES,
    ROWS,
    SHARES,
    SPATIAL_ARGUMENTS,
    SeparableConfig,
    axis_numbers,
    axis_values,
    identity,
    kind_of,
)
from gradkern.kernels.separable.layout import VECTOR, Layout, lifted, with_reciprocals

_MOST = (1 << 31) - 1
_PLACES = {"dY": "first", "X": "first", "dX": "third", "Y": "third"}


def separable_plan(call: Call, maps: Sequence[AxisMap]) -> LaunchPlan | EmptyPlan:
    """The plan of a call whose dX, of N, C and spatial axes, is the gradient of the input of these maps from dY."""
    device, dY, dX = device_of(call), call.inputs["dY"], call.outputs["dX"]
    if 0 in (dX.size, dY.size):
        return EmptyPlan("empty", 0, device, (dX.nbytes,))
    sizes, outs = prod(dX.shape[2:]), prod(dY.shape[2:])
    if max(sizes, outs, *map(reach, maps)) > _MOST - LINES:
        raise Refusal(f"a plane of {sizes} elements, of {outs} outputs, or its windows, are too large")
    maps = simplified(maps)
    maps = [*(identity(maps[0]) for _ in range(3 - len(maps))), *maps]
    layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dY", "dX"))
    return _planned(call, device, layout, maps)


def _planned(call: Call, device: Device, layout: Layout, maps: Sequence[AxisMap]) -> LaunchPlan:
    dY, dX = call.inputs["dY"], call.outputs["dX"]
    sizes, outs, last = lifted(dX.shape), lifted(dY.shape), layout.last
    width = layout.lanes if last else _width(dY, outs[2])
    taps1, taps2 = (next((each for each in (2, 4, 8, 16) if each >= most_outputs(axis)), 32) for axis in maps[1:])
    flat = maps[0] == identity(maps[0])
    kind, native = kind_of(maps), device.capability >= (8, 0)
    in_flight = min(taps1, max(4, VECTOR // (width * dX.dtype.itemsize)))
    config = SeparableConfig(kind, dX.dtype.name, last, width, True, taps1, taps2, in_flight, flat, native)
    if kind.name == "lanczos" or (kind.narrowed and not flat):
        config = replace(config, blocks_per_processor=2)  # three weights in loops, or a series, take over 80 registers
    channels, images = (dX.shape[1], dX.shape[0]) if last else (1, prod(dX.shape[:2]))
    inner = channels // width if last else 1
    across = 8 if inner % 8 == 0 else min(inner, 32)  # 128 bytes side by side
    rows = images * sizes[0] * sizes[1]
    of_block, wide, span = _shape_of_block(config, across, rows, sizes[2], outs[2], device.processors)
    config = replace(config, whole=span * (1 if last else width) >= outs[2])
    tiles, tiles2 = -(-inner // across), -(-sizes[2] // wide)
    grid = -(-rows // of_block) * tiles2 * tiles
    if max(grid, rows + of_block, channels * dX.dtype.itemsize) > _MOST:
        raise Refusal(f"{rows} rows of dX, or positions of {channels} channels, are more than 32 bits can count")
    numbers = with_reciprocals(
        across=across, wide=wide, span=span, tiles=tiles, tiles2=tiles2, size1=sizes[1], size0=sizes[0]
    )
    numbers |= {"channels": channels, "inner": inner, "rows": rows, "of_block": of_block}
    numbers |= axis_values([axis_numbers(each, config.compute) for each in maps])
    limits = {"blocks_per_processor": config.blocks_per_processor, "shared_bytes": config.shared_bytes}
    return launched(call, "gradkern.kernels.separable.kernels:build", config, numbers, grid, ARGUMENTS, **limits)


def launched(
    call: Call,
    builder: str,
    config: Any,
    numbers: Mapping[str, int],
    grid: int,
    arguments: Sequence[str] = SPATIAL_ARGUMENTS,
    **limits: int,
) -> LaunchPlan:
    """The launch of the builder's kernel. config: has `data`, `name` and `threads`. limits: as of kernel_of."""
    words = operator_words(call.operator)
    kernel = kernel_of(
        device_of(call),
        builder,
        config,
        name=kernel_name(words, config.data, config.name),
        arguments=len(arguments),
        threads=config.threads,
        **limits,
    )
    given = [_PLACES.get(name, "second") for name in (*call.inputs, *call.outputs)]
    launch = Launch(kernel, grid, config.threads, *named(arguments, numbers, given))
    return LaunchPlan(f"{words}_{config.name}", launch)


def _shape_of_block(
    config: SeparableConfig, across: int, rows: int, columns: int, outs: int, processors: int
) -> tuple[int, int, int]:
    """Rows and columns of a block, and the outputs of a line that are in shared memory at a time, by accesses."""
    positions = 1 if config.last else config.width
    words = config.lines // config.itemsize // (across * (config.width if config.last else 1))
    results = config.threads // across
    most = min(COLUMNS, SHARES // config.taps2, 8 if config.last else columns)
    wide = -(-columns // -(-columns // most))
    of_block = min(4 if config.last else ROWS, SHARES // config.taps1)
    whole = -(-outs // positions) * positions

    def line() -> int:
        return min(-(-wide * outs // columns) + config.taps2 + positions, outs + positions - 1) // positions * positions

    def is_large() -> bool:
        few = -(-rows // of_block) * -(-columns // wide) < 2 * processors
        more = of_block * wide > results and of_block * whole > words
        return few or more or of_block * line() > words or of_block >= 2 * rows

    while of_block > 1 and is_large():
        of_block //= 2
    while wide > 1 and is_large():
        wide = -(-wide // 2)
    fits = words // of_block // positions * positions
    return of_block, wide, max(1, (whole if whole <= fits else min(line(), fits)) // positions)


def _width(dY: Tensor, columns: int) -> int:
    """Elements of one access along a line."""
    width = 16 // dY.dtype.itemsize
    while width > 1 and (columns % width or dY.alignment < min(16, width * dY.dtype.itemsize)):
        width //= 2
    return width
