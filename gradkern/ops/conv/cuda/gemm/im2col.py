"""The moves between a convolution's tensors and the matrices of its products, from geometry to launches.

A move names what it does to which operand; operands are numbered, and their addresses come with the call. The kernels
are in `cuda_columns`, which is loaded where one of them must be compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Literal

from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.launch import Launch, kernel_of_form
from gradkern.ops.conv.cuda.gemm.im2col_form import Form
from gradkern.ops.conv.cuda.gemm.layout import Grid, PartOfData, Residues, Slice, View
from gradkern.ops.conv.geometry import Geometry

__all__ = ["Form", "Layout", "Move", "Place", "add_shares", "gather", "launch", "pack", "scatter"]
__all__ += ["sum_taps"]

_NARROW = 1 << 30  # counts below it fit 32 bits, rounded up to whole blocks too


@dataclass(frozen=True, slots=True)
class Place:
    """An address: so many bytes after an operand's."""

    operand: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a slice's matrix lie, in bytes after `place`. tap counts taps or phases in C order."""

    place: Place
    image: int
    position: int
    group: int
    channel: int
    tap: int
    group_channels: int


@dataclass(frozen=True, slots=True)
class Move:
    """One launch: arguments 0 and 1 are the addresses of `places`."""

    form: Form
    places: tuple[Place, Place]
    arguments: tuple[int, ...]
    blocks: int


def gather(view: View, grid: Grid, piece: Slice, layout: Layout, device: Device) -> Move:
    """matrix[image, p, channel, tap] = tensor[image, channel, steps*q + ...], 0 outside."""
    form, blocks, along = _form("gather", view, piece, layout, device, single=grid.taps == (1, 1, 1))
    arguments = (
        *(0, 0, piece.images, view.channels, layout.group_channels, piece.start, piece.count, along, *grid.grid[1:]),
        *(*view.sizes, *view.strides, *grid.steps, *grid.taps, *grid.firsts, *grid.spacings),
        *(layout.image, layout.position, layout.group, layout.channel, layout.tap),
    )
    return Move(form, (Place(view.operand, piece.image * view.strides[0]), layout.place), arguments, blocks)


def scatter(view: View, residues: Residues, run: Slice, layout: Layout, device: Device) -> Move:
    """tensor[image, channel, x] = matrix[image, grid position of x, channel, slot of x's residue], 0 where none is."""
    whole = replace(run, count=view.positions)
    form, blocks, along = _form("scatter", view, whole, layout, device, single=True)
    arguments = (
        *(0, 0, whole.images, view.channels, layout.group_channels, whole.count, along, *view.sizes[1:], *view.strides),
        *(*residues.steps, *residues.before, *residues.lows, *residues.slots, *residues.live, *residues.grid[1:]),
        *(layout.image, layout.position, layout.group, layout.channel, layout.tap),
    )
    return Move(form, (Place(view.operand, run.image * view.strides[0]), layout.place), arguments, blocks)


def sum_taps(view: View, geometry: Geometry, run: Slice, layout: Layout, dtype: str, device: Device) -> Move:
    """tensor[image, channel, x] = sum over taps of matrix[image, q, channel, tap], of type `dtype`, that meet x."""
    whole = replace(run, count=view.positions)
    axes = list(zip(geometry.strides, geometry.dilations, strict=True))
    form, blocks, along = _form("sum_taps", view, whole, layout, device, dtype=dtype)
    arguments = (
        *(0, 0, whole.images, view.channels, layout.group_channels, whole.count, along, *view.sizes[1:], *view.strides),
        *(*geometry.strides, *geometry.pads_begin, *geometry.dilations, *geometry.kernel),
        *(step // gcd(step, dilation) for step, dilation in axes),
        *(dilation // gcd(step, dilation) for step, dilation in axes),
        *geometry.out,
        *(layout.image, layout.position, layout.group, layout.channel, layout.tap),
    )
    return Move(form, (Place(view.operand, run.image * view.strides[0]), layout.place), arguments, blocks)


def _form(
    kernel: Literal["gather", "scatter", "sum_taps"],
    view: View,
    piece: Slice,
    layout: Layout,
    device: Device,
    single: bool = False,
    dtype: str = "",
) -> tuple[Form, int, int]:
    """The form for so many positions of a tensor, its blocks, and how many of them are side by side.

    single: each element is moved once; dtype is that of the matrix, where it is another than the tensor's.
    """
    grouped = layout.group_channels < view.channels and layout.group != layout.group_channels * layout.channel
    wide = piece.length * view.channels >= _NARROW
    form = Form(kernel, dtype or view.dtype, grouped=grouped, wide=wide, native_bfloat16=device.capability >= (8, 0))
    form = replace(form, result=view.dtype if dtype else "", blocks_per_processor=2 if wide else 4)
    if layout.channel != ITEMSIZE[form.word] or (view.strides[1] != view.item and view.channels > 1):
        along = -(-piece.length // form.threads)
        if kernel == "sum_taps":  # a channel has a register (two, in float64) for its sum
            form = replace(form, chunk=8, blocks_per_processor=min(form.blocks_per_processor, 3))
        if single and along * (view.channels // 32) >= 8 * device.processors:
            form = replace(form, chunk=32)  # what is computed for a position serves more of them
        return form, along * -(-view.channels // form.chunk), along
    width = _width(view, piece, layout, ITEMSIZE[form.word])
    form = replace(form, lanes="channels", words=width, vector_channels=width, at_once=1 if dtype else 2)
    form = replace(form, blocks_per_processor=min(form.blocks_per_processor, 3))
    if not dtype and width * view.item >= 4:  # moved as they are, whatever they are
        form = replace(form, word="float32", words=width * view.item // 4)
    return form, -(-piece.length * (view.channels // width) // (form.threads * form.at_once)), 1


def _width(view: View, piece: Slice, layout: Layout, item: int) -> int:
    """How many channels one access takes, at most 16 bytes of them, in the tensor and in the matrix."""
    width = 16 // max(view.item, item)
    per_group = min(layout.group_channels, view.channels)
    strides = [view.strides[0] if piece.images > 1 else 0, *view.strides[2:], piece.image * view.strides[0]]
    others = [layout.image, layout.position, layout.group, layout.tap, layout.place.offset]
    while width > 1:
        fits = view.alignment % (width * view.item) == 0 and not any(each % (width * view.item) for each in strides)
        if per_group % width == 0 and fits and not any(each % (width * item) for each in others):
            return width
        width //= 2
    return 1


def pack(W: View, part: PartOfData, filters: int, matrix: Layout, device: Device) -> Move:
    """packed[filter, phase, tap, channel] = W[filter, channel, the phase's tap], group by group of `filters`.

    Of `matrix`, channel is the distance of filters, position that of phases; channels of W lie end to end.
    """
    spatial = W.strides[2:]
    start = sum(tap * stride for tap, stride in zip(part.origin, spatial, strict=True))
    total = W.images * prod(part.phases) * W.channels
    form = Form("pack", W.dtype, wide=total >= _NARROW, native_bfloat16=device.capability >= (8, 0))
    arguments = (
        *(0, 0, total, W.channels, filters, *part.phases, *W.strides[:2]),
        *(step * stride for step, stride in zip(part.by_phase, spatial, strict=True)),
        *part.grid.taps,
        *(step * stride for step, stride in zip(part.by_tap, spatial, strict=True)),
        *(matrix.group, matrix.channel, matrix.position, matrix.tap),
    )
    return Move(form, (Place(W.operand, start), matrix.place), arguments, -(-total // form.threads))


def add_shares(
    dW: View, source: Place, count: int, distance: int, dtype: str, taps_inside: bool, device: Device
) -> Move:
    """dW = the sum of `count` shares, `distance` bytes apart, each [filter, channel, tap] or [filter, tap, channel]."""
    rows = dW.channels * dW.positions
    total = dW.images * rows
    walkers = 8 if count >= 8 else 1
    form = Form("add_shares", dtype, walkers=walkers, taps_inside=taps_inside, result=dW.dtype)
    form = replace(form, wide=total >= _NARROW, native_bfloat16=device.capability >= (8, 0))
    arguments = (
        *(0, 0, total, count, distance, rows, dW.positions if taps_inside else dW.channels, *dW.sizes[1:]),
        *dW.strides,
    )
    return Move(form, (source, Place(dW.operand)), arguments, -(-total // (form.threads // walkers)))


def launch(move: Move, device: Device) -> Launch:
    """The move's kernel on the device, compiled and loaded where it is not, and its launch."""
    builder = "gradkern.ops.conv.cuda.gemm.im2col_kernel:build"
    kernel = kernel_of_form(device, builder, move.form, arguments=len(move.arguments))
    return Launch(kernel, move.blocks, move.form.threads, move.arguments, changing=(0, 1))
