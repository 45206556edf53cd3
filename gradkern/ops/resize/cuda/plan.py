"""The gradient of resizing on a GPU: by whole factors as a stencil, where every element of dX has the same taps of dY,
with the same weights; others as separable maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from gradkern.call import Call, Tensor
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.separable.axis_map import AxisMap, Resampling
from gradkern.kernels.separable.config import AXIS, axis_values
from gradkern.kernels.separable.layout import VECTOR, Layout
from gradkern.kernels.separable.plan import launched, separable_plan
from gradkern.ops.resize.coordinates import axis_maps, by_onnx_names
from gradkern.ops.resize.cuda.config import Stencil, StencilConfig

_LONGEST = 1 << 20  # outputs along an axis whose coordinates are compared
_MOST_LINES, _MOST_LOADS = 48, 144
"""Of a thread: lines of dY, and vectors of channels; where these are not last, elements, four times as many. Code grows
with them.
"""


def plan(call: Call) -> LaunchPlan | EmptyPlan:
    call = by_onnx_names(call)
    maps = axis_maps(call)
    return _stencil_plan(call, maps) or separable_plan(call, maps)


def _stencil_of(axis: AxisMap) -> Stencil | None:
    if not isinstance(axis, Resampling) or axis.excluded or axis.bounded or axis.normalized:
        return None
    factor, rest = divmod(axis.output, axis.input)
    if rest or factor == 0 or axis.output > _LONGEST:
        return None
    o = np.arange(axis.output)
    if axis.mode == "nearest":
        return Stencil(factor, 0) if np.array_equal(axis.terms(np.float64).inputs, o // factor) else None
    distances = axis.coordinates(np.float64) - ((o + 0.5) / factor - 0.5)
    return Stencil(factor, factor // 2) if axis.mode == "linear" and np.abs(distances).max() < 1e-6 else None


def _stencil_plan(call: Call, maps: Sequence[AxisMap]) -> LaunchPlan | None:
    """The plan of a call whose every axis is resized by a whole factor, around the centres of its elements or to
    nearest ones; None of others.
    """
    dY, dX = call.inputs["dY"], call.outputs["dX"]
    if 0 in (dX.size, dY.size) or max(prod(dX.shape[1:]), prod(dY.shape[1:])) >= 1 << 30:
        return None
    found = [_stencil_of(each) for each in maps]
    stencils = (*(Stencil(1, 0),) * (3 - len(found)), *(each for each in found if each is not None))
    if len(stencils) != 3:
        return None
    layout = Layout.of(dX, {"dY": dY, "dX": dX}, ("dY", "dX"))
    patch, piece = _patch(stencils, layout.last, dY, dX)
    device = device_of(call)
    config = StencilConfig(
        dX.dtype.name,
        layout.last,
        layout.lanes if layout.last else patch[2],
        stencils,
        patch,
        piece,
        device.capability >= (8, 0),
    )
    lines, loads = len(config.lines), stencils[2].outputs(patch[2])
    if lines > _MOST_LINES or lines * loads > _MOST_LOADS * (1 if layout.last else 4):
        return None
    numbers, grid = layout.numbers(dX.shape, config.threads, config.patch)
    sizes = [(1, 1)] * (3 - len(maps)) + [(each.input, each.output) for each in maps]
    numbers |= {"channels": dX.shape[1] if layout.last else 1, "plane_step": 0}
    numbers |= axis_values([(*each, *(0,) * (AXIS - 2)) for each in sizes])
    return launched(
        call,
        "gradkern.ops.resize.cuda.stencil_kernel:build",
        config,
        numbers,
        grid,
        blocks_per_processor=config.blocks_per_processor,
    )


def _patch(stencils: Sequence[Stencil], last: bool, dY: Tensor, dX: Tensor) -> tuple[tuple[int, int, int], int]:
    """The patch of a thread, and the bytes of a load along a line."""
    planes, rows, along = stencils
    item = dX.dtype.itemsize
    if last:
        return (1, 2 if rows.halo else 1, 2 if along.halo == 1 else 1), item
    columns = VECTOR // gcd(VECTOR, along.factor * item)  # whole loads
    while columns > 1 and (dX.shape[-1] % columns or dX.alignment < columns * item):
        columns //= 2
    piece = gcd(VECTOR, columns * along.factor * item)
    while piece > item and dY.alignment < piece:
        piece //= 2
    # with larger halos two rows of a thread would spill registers
    return (2 if planes.halo else 1, 2 if 0 < rows.halo * item <= 8 else 1, columns), piece
