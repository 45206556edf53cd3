"""Which forms of the depthwise kernel on tensor cores fit a problem and a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import up
from gradkern.ops.conv.cuda.depthwise.mma_form import BLOCK, OCTET, SLOTS, WINDOW, MmaForm
from gradkern.ops.conv.cuda.depthwise.tiling import Shape
from gradkern.search.candidate import Unfit

__all__ = ["forms"]

_REGISTERS = 128  # of a thread, at most


def forms(shape: Shape, device: Device) -> Iterator[MmaForm]:
    """Those that fit, with many channels in a block first. Raises Unfit where there is none."""
    reason = _unfit(shape, device)
    if reason:
        raise Unfit(reason)
    found = False
    for channels in (32, 16):
        made = MmaForm(
            shape.dtype,
            shape.channels,
            channels,
            shape.source,
            shape.strip,
            shape.taps,
            shape.begins,
            (shape.source_strides[0], *shape.source_strides[2:]),
            (shape.strip_strides[0], *shape.strip_strides[2:]),
            shape.filter_strides,
        )
        if made.shared_bytes <= device.shared_bytes:
            blocks = min(device.shared_bytes // (made.shared_bytes + 1024), 65536 // (_REGISTERS * made.threads))
            found = True
            yield replace(made, blocks_per_processor=max(1, blocks))
    if not found:
        raise Unfit("its rows have no room in shared memory")


def _unfit(shape: Shape, device: Device) -> str:
    """Why there is no form; nothing where there may be one."""
    if shape.gradient != "dW" or shape.dtype not in ("float16", "bfloat16") or not shape.channels_last:
        return "tensor cores compute the dW of channels-last arrays of 16-bit types"
    if device.capability < (8, 0):
        return "tensor cores of this device do not have these products"
    strides = (*shape.source_strides[:1], *shape.source_strides[2:], *shape.strip_strides[:1], *shape.strip_strides[2:])
    aligned = min(shape.source_alignment, shape.strip_alignment) >= 16
    if shape.channels % OCTET or not aligned or any(each % 16 for each in strides):
        return "tensor cores take channels in vectors of 8, at multiples of 16 bytes"
    if shape.strides != (1, 1) or shape.dilations != (1, 1):
        return "tensor cores take no stride and no dilation"
    if shape.taps[1] > WINDOW - BLOCK + 1 or shape.taps[0] > 8:
        return f"tensor cores take up to 8x{WINDOW - BLOCK + 1} taps"
    across = SLOTS * BLOCK
    sides = SLOTS // -(-shape.strip[1] // BLOCK) if shape.strip[1] <= across else 0
    if not sides or sides * up(shape.source[1], 2) > across or shape.begins[1] > across:
        return f"tensor cores take rows of up to {across} columns"
    return ""
