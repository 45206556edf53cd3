"""From a call to a launch of the separable block: the gradient dX of an input from dY."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.separable.axis_map import AxisMap, most_outputs, reach, simplified
from gradkern.kernels.separable.config import (
    LAST_ARGUMENTS,
    LINES,
    LINES_ARGUMENTS,
    ROWS,
    LastConfig,
    LinesConfig,
    axis_numbers,
    axis_values,
    identity,
    kind_of,
)
from gradkern.kernels.separable.layout import Layout, lifted, with_reciprocals

__all__ = ["separable_plan"]

_THREADS, _MOST = 256, (1 << 31) - 1


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
    layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dX",))
    if layout.last:
        layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dY", "dX"))
    make = _last if layout.last else _lines
    return make(call, device, layout, maps)


def _last(call: Call, device: Device, layout: Layout, maps: Sequence[AxisMap]) -> LaunchPlan:
    dX, outs = call.outputs["dX"], lifted(call.inputs["dY"].shape)
    sizes, channels, lanes = lifted(dX.shape), dX.shape[1], layout.lanes
    inner = channels // lanes
    across = 8 if inner % 8 == 0 else min(inner, 32)  # 128 bytes side by side
    positions = _THREADS // across
    rows = next(each for each in (4, 2, 1) if each == 1 or (each < 2 * sizes[1] and 2 * each <= positions))
    wide = min(positions // rows, sizes[2])
    taps = next((each for each in (2, 4, 8) if each >= most_outputs(maps[1])), 32)
    flat = maps[0] == identity(maps[0])
    config = LastConfig(kind_of(maps), dX.dtype.name, lanes, rows, taps, flat, device.capability >= (8, 0))
    tiles, tiles2, tiles1 = -(-inner // across), -(-sizes[2] // wide), -(-sizes[1] // rows)
    grid = dX.shape[0] * sizes[0] * tiles1 * tiles2 * tiles
    if max(grid, channels * dX.dtype.itemsize) > _MOST:
        raise Refusal(f"{grid} blocks, or positions of {channels} channels, are more than 32 bits can count")
    numbers = with_reciprocals(across=across, wide=wide, tiles=tiles, tiles2=tiles2, tiles1=tiles1, size0=sizes[0])
    numbers |= {"channels": channels, "inner": inner}
    numbers["span"] = min(LINES // (rows * across * lanes * config.itemsize), outs[2])
    numbers |= axis_values([axis_numbers(each, config.compute) for each in maps])
    return _launched(call, device, "last_kernel", config, LAST_ARGUMENTS, numbers, grid)


def _lines(call: Call, device: Device, layout: Layout, maps: Sequence[AxisMap]) -> LaunchPlan:
    dY, dX = call.inputs["dY"], call.outputs["dX"]
    sizes, outs = lifted(dX.shape), lifted(dY.shape)
    columns = min(layout.lanes, 4)
    width = _width(dY, outs[2])
    config = LinesConfig(kind_of(maps), dX.dtype.name, columns, width, device.capability >= (8, 0))
    across = min(-(-sizes[2] // columns), _THREADS)
    rows = prod(dX.shape[:2]) * sizes[0] * sizes[1]
    most = LINES // config.itemsize // ROWS // width * width  # elements of a line of one group
    line = min(-(-outs[2] // width) * width, most)
    groups = max(1, min(_THREADS // across, most // line, -(-rows // ROWS)))
    tiles = -(-sizes[2] // (across * columns))
    grid = -(-rows // (groups * ROWS)) * tiles
    step = outs[2] * dY.dtype.itemsize if outs[0] * outs[1] > 1 else 1
    if max(grid, rows + groups * ROWS, step) > _MOST:
        raise Refusal(f"{rows} rows of dX are too many, or those of dY, of {outs[2]} elements, too long")
    numbers = with_reciprocals(tiles=tiles, across=across, vectors=line // width, size0=sizes[0], size1=sizes[1])
    numbers |= {"rows": rows, "groups": groups, "span": line}
    numbers |= axis_values([axis_numbers(each, config.compute) for each in maps])
    return _launched(call, device, "lines_kernel", config, LINES_ARGUMENTS, numbers, grid)


def _width(dY: Tensor, columns: int) -> int:
    """Elements of one access along a line."""
    width = 16 // dY.dtype.itemsize
    while width > 1 and (columns % width or dY.alignment < min(16, width * dY.dtype.itemsize)):
        width //= 2
    return width


def _launched(
    call: Call,
    device: Device,
    builder: str,
    config: LastConfig | LinesConfig,
    arguments: Sequence[str],
    numbers: dict[str, int],
    grid: int,
) -> LaunchPlan:
    words = operator_words(call.operator)
    kernel = kernel_of(
        device,
        f"gradkern.kernels.separable.kernels:{builder}",
        config,
        name=kernel_name(words, config.data, config.name),
        arguments=len(arguments),
        threads=config.threads,
        blocks_per_processor=config.blocks_per_processor,
        shared_bytes=config.shared_bytes,
    )
    given = [{"dY": arguments[0], "dX": arguments[1]}.get(name, arguments[2]) for name in (*call.inputs, *call.outputs)]
    return LaunchPlan(f"{words}_{config.name}", Launch(kernel, grid, config.threads, *named(arguments, numbers, given)))
