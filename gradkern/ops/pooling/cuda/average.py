"""The gradients of average pools on a GPU."""

from __future__ import annotations

from math import prod

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.separable.axis_map import Windows, reach, simplified
from gradkern.kernels.separable.config import axis_numbers, axis_values, identity
from gradkern.kernels.separable.layout import Layout
from gradkern.kernels.separable.plan import launched, separable_plan
from gradkern.ops.pooling.average_maps import axis_maps
from gradkern.ops.pooling.cuda.max import PATCHES, patched


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    maps = simplified(axis_maps(call))
    along = [each for each in [*(identity(maps[0]) for _ in range(3 - len(maps))), *maps] if isinstance(each, Windows)]
    dY, dX = call.inputs["dY"], call.outputs["dX"]
    is_large = max(prod(dX.shape[2:]), prod(dY.shape[2:]), *map(reach, along or maps)) >= 1 << 31
    reaching = all(each.begin <= (each.kernel - 1) * each.dilation for each in along)
    if len(along) < 3 or not reaching or is_large or 0 in (dX.size, dY.size):
        return separable_plan(call, maps)
    layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dX",))
    if layout.last:
        layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dY", "dX"))
    config = patched(layout, along, (dY,), device_of(call).capability >= (8, 0), average=True)
    if config is None:
        return separable_plan(call, maps)
    numbers, grid = layout.numbers(dX.shape, config.threads, config.patch)
    numbers |= {"channels": dX.shape[1] if layout.last else 1}
    numbers |= axis_values([axis_numbers(each, config.compute) for each in along])
    return launched(call, PATCHES, config, numbers, grid)
