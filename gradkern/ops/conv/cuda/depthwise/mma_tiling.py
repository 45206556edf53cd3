"""Which forms of the depthwise kernel on tensor cores fit a problem and a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import up
from gradkern.ops.conv.cuda.depthwise.mma_form import BLOCK, OCTET, SLOTS, WINDOW, MmaForm
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem, Plane
from gradkern.ops.conv.cuda.depthwise.tiling import REGISTERS, RESERVED, depth_of
from gradkern.ops.conv.geometry import Axes
from gradkern.search.candidate import Unfit

__all__ = ["forms"]

_REGISTERS = 128  # of a thread, at most


def forms(problem: DepthwiseProblem, device: Device) -> Iterator[MmaForm]:
    """Those that fit, with many channels in a block first. Raises Unfit where there is none."""
    reason = _unfit(problem, device)
    if reason:
        raise Unfit(reason)
    geometry, found = problem.geometry, False
    for channels in (32, 16):
        made = MmaForm(
            problem.dtype,
            problem.channels,
            channels,
            _pair(geometry.spatial),
            _pair(geometry.out),
            _pair(geometry.kernel),
            _pair(geometry.pads_begin),
            _without_channel(problem.X),
            _without_channel(problem.dY),
            problem.W_strides,
        )
        if made.shared_bytes <= device.shared_bytes:
            blocks = min(
                device.shared_bytes // (made.shared_bytes + RESERVED), REGISTERS // (_REGISTERS * made.threads)
            )
            found = True
            yield replace(made, blocks_per_processor=max(1, blocks))
    if not found:
        raise Unfit("its rows have no room in shared memory")


def _unfit(problem: DepthwiseProblem, device: Device) -> str:
    """Why there is no form; nothing where there may be one."""
    geometry = problem.geometry
    if problem.gradient != "dW" or problem.dtype not in ("float16", "bfloat16") or not problem.channels_last:
        return "tensor cores compute the dW of channels-last arrays of 16-bit types"
    if not depth_of(problem).single:
        return "tensor cores take one or two spatial axes"
    if device.capability < (8, 0):
        return "tensor cores of this device do not have these products"
    strides = (*_without_channel(problem.X), *_without_channel(problem.dY))
    aligned = min(problem.X.alignment, problem.dY.alignment) >= 16
    if problem.channels % OCTET or not aligned or any(each % 16 for each in strides):
        return "tensor cores take channels in vectors of 8, at multiples of 16 bytes"
    if geometry.strides != (1, 1) or geometry.dilations != (1, 1):
        return "tensor cores take no stride and no dilation"
    if geometry.kernel[1] > WINDOW - BLOCK + 1 or geometry.kernel[0] > 8:
        return f"tensor cores take up to 8x{WINDOW - BLOCK + 1} taps"
    across = SLOTS * BLOCK
    sides = SLOTS // -(-geometry.out[1] // BLOCK) if geometry.out[1] <= across else 0
    if not sides or sides * up(geometry.spatial[1], 2) > across or geometry.pads_begin[1] > across:
        return f"tensor cores take rows of up to {across} columns"
    return ""


def _pair(values: Axes) -> tuple[int, int]:
    rows, columns = values
    return rows, columns


def _without_channel(plane: Plane) -> tuple[int, int, int]:
    image, _, row, column = plane.strides
    return image, row, column
