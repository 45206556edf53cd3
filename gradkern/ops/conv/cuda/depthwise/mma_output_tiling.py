"""Which forms of the depthwise kernel of outputs on tensor cores fit a problem and a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import up
from gradkern.ops.conv.cuda.depthwise.mma_output_form import BLOCK, OCTET, SLOTS, WINDOW, MmaOutputForm
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem, Plane
from gradkern.ops.conv.cuda.depthwise.tiling import REGISTERS, RESERVED, depth_of
from gradkern.ops.conv.geometry import Axes
from gradkern.search.candidate import Unfit

__all__ = ["forms"]

_REGISTERS = 128  # of a thread, at most
_WIDE, _WIDE_ROWS = 32, (4, 3, 2)
_NARROW, _NARROW_ROWS = 16, (3, 2)


def forms(problem: DepthwiseProblem, device: Device) -> Iterator[MmaOutputForm]:
    """Those that fit, what is expected to be fast first. Raises Unfit where there is none."""
    reason = _unfit(problem, device)
    if reason:
        raise Unfit(reason)
    geometry, of_dX = problem.geometry, problem.gradient == "dX"
    source, output = (problem.dY, problem.X) if of_dX else (problem.X, problem.dY)
    out, data = _pair(geometry.out), _pair(geometry.spatial)
    made = MmaOutputForm(
        "dX" if of_dX else "Y",
        problem.dtype,
        problem.channels,
        _WIDE,
        out if of_dX else data,
        data if of_dX else out,
        _pair(geometry.kernel),
        _begins(problem),
        _without_channel(source),
        _without_channel(output),
        problem.W_strides,
        problem.bias_stride,
        _WIDE_ROWS[0],
    )
    found = False
    for channels, most_rows in _in_order(problem.channels):
        for rows in most_rows:
            form = replace(made, channels=channels, rows=rows)
            if form.moved <= form.threads and form.shared_bytes <= device.shared_bytes:
                blocks = min(
                    device.shared_bytes // (form.shared_bytes + RESERVED), REGISTERS // (_REGISTERS * form.threads)
                )
                found = True
                yield replace(form, blocks_per_processor=max(1, blocks))
                break
    if not found:
        raise Unfit("its rows have no room in shared memory")


def _in_order(channels: int) -> list[tuple[int, tuple[int, ...]]]:
    """Channels of a block, and the rows that it may take at a time, the most first. Many channels make long accesses,
    few leave fewer of the last block without any.
    """
    wide, narrow = (_WIDE, _WIDE_ROWS), (_NARROW, _NARROW_ROWS)
    return [wide, narrow] if 7 * up(channels, _WIDE) <= 8 * up(channels, _NARROW) else [narrow, wide]


def _unfit(problem: DepthwiseProblem, device: Device) -> str:
    """Why there is no form; nothing where there may be one."""
    geometry = problem.geometry
    if problem.gradient == "dW" or problem.dtype not in ("float16", "bfloat16") or not problem.channels_last:
        return "tensor cores compute dX and Y of channels-last arrays of 16-bit types"
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
    if any(not 0 <= begin < taps for begin, taps in zip(_begins(problem), geometry.kernel, strict=True)):
        return "tensor cores take pads smaller than the filter"
    columns = (geometry.spatial if problem.gradient == "dX" else geometry.out)[1]
    if columns > SLOTS * BLOCK:
        return f"tensor cores take rows of up to {SLOTS * BLOCK} columns"
    return ""


def _begins(problem: DepthwiseProblem) -> tuple[int, int]:
    begins, taps = _pair(problem.geometry.pads_begin), _pair(problem.geometry.kernel)
    return (taps[0] - 1 - begins[0], taps[1] - 1 - begins[1]) if problem.gradient == "dX" else begins


def _pair(values: Axes) -> tuple[int, int]:
    rows, columns = values
    return rows, columns


def _without_channel(plane: Plane) -> tuple[int, int, int]:
    image, _, row, column = plane.strides
    return image, row, column
