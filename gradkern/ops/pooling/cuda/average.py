"""The gradients of average pools on a GPU."""

from __future__ import annotations

from math import prod

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.separable.axis_map import Windows, reach, simplified
from gradkern.kernels.separable.config import axis_numbers, axis_values, identity
from gradkern.kernels.separable.layout import Layout
from gradkern.kernels.separable.plan import separable_plan
from gradkern.ops.pooling.average_maps import axis_maps
from gradkern.ops.pooling.cuda.config import MOST_REACH, PatchConfig
from gradkern.ops.pooling.cuda.max import PATCHES, launched

__all__ = ["plan"]


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    maps = simplified(axis_maps(call))
    windows = [
        each for each in [*(identity(maps[0]) for _ in range(3 - len(maps))), *maps] if isinstance(each, Windows)
    ]
    small = len(windows) == 3 and all(
        each.stride <= 2 and each.begin <= (each.kernel - 1) * each.dilation <= MOST_REACH for each in windows[1:]
    )
    dY, dX = call.inputs["dY"], call.outputs["dX"]
    is_large = max(prod(dX.shape[2:]), prod(dY.shape[2:]), *map(reach, windows or maps)) >= 1 << 31
    return separable_plan(call, maps) if not small or is_large or 0 in (dX.size, dY.size) else _patches(call, windows)


def _patches(call: Call, windows: list[Windows]) -> LaunchPlan:
    """Of small windows that touch or overlap."""
    device, dY, dX = device_of(call), call.inputs["dY"], call.outputs["dX"]
    layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dX",))
    if layout.last:
        layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dY", "dX"))
    rows, columns = (1 if windows[1].input == 1 else 2), (2 if layout.last else max(2, layout.lanes))
    group = columns // windows[2].stride
    if layout.last or dY.alignment < min(16, group * dY.dtype.itemsize) or windows[2].output % group:
        group = 0
    config = PatchConfig(
        dX.dtype.name,
        layout.last,
        layout.lanes,
        False,
        tuple((each.kernel, each.stride, each.dilation, each.begin) for each in windows[1:]),
        (rows, columns),
        group,
        False,
        windows[0] == identity(windows[0]),
        True,
        device.capability >= (8, 0),
    )
    numbers, grid = layout.numbers(dX.shape, config.threads, config.patch)
    numbers |= {"channels": dX.shape[1] if layout.last else 1}
    numbers |= axis_values([axis_numbers(each, config.compute) for each in windows])
    return launched(call, PATCHES, config, numbers, grid)
