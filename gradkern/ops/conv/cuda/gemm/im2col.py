"""im2col and col2im, between a convolution's tensors and the matrices of its products: from geometry to launches.

A step names its kernel and the operands that it reads and writes. Operands are numbers; a call provides their
addresses. The kernels are in `im2col_kernel`, imported only to compile one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, kernel_of_config
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.layout import AffineWindow, Operand, Slice
from gradkern.ops.conv.geometry import Geometry

_ENOUGH_BLOCKS = 8  # of a multiprocessor: two rounds of resident blocks
_NARROW = 1 << 30  # counts below it fit 32 bits, even rounded up to whole blocks


@dataclass(frozen=True, slots=True)
class Address:
    """An address: a number of bytes after an operand's."""

    operand: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """The layout of a slice's matrix, in bytes after `address`. tap counts taps in C order."""

    address: Address
    image: int
    position: int
    group: int
    channel: int
    tap: int
    group_channels: int


@dataclass(frozen=True, slots=True)
class Im2colStep:
    """One launch of a kernel. Arguments 0 and 1 are the addresses."""

    config: Im2colConfig
    addresses: tuple[Address, Address]
    arguments: tuple[int, ...]
    blocks: int


def gather(tensor: Operand, grid: AffineWindow, piece: Slice, layout: MatrixLayout, device: Device) -> Im2colStep:
    """matrix[image, p, channel, tap] = tensor[image, channel, steps*q + ...], 0 outside."""
    config, blocks, along = _config("gather", tensor, piece, layout, device, single=grid.taps == (1, 1, 1))
    arguments = (
        *(0, 0, piece.images, tensor.channels, layout.group_channels, piece.start, piece.count, along, *grid.grid[1:]),
        *(*tensor.sizes, *tensor.strides, *grid.steps, *grid.taps, *grid.firsts, *grid.spacings),
        *(layout.image, layout.position, layout.group, layout.channel, layout.tap),
    )
    first = Address(tensor.number, piece.image * tensor.strides[0])
    return Im2colStep(config, (first, layout.address), arguments, blocks)


def col2im(
    tensor: Operand, geometry: Geometry, run: Slice, layout: MatrixLayout, dtype: str, device: Device
) -> Im2colStep:
    """tensor[image, channel, x] = sum over taps of matrix[image, q, channel, tap], of type `dtype`, that contribute to
    x.
    """
    whole = replace(run, count=tensor.positions)
    axes = list(zip(geometry.strides, geometry.dilations, strict=True))
    single = not geometry.taps_overlap
    config, blocks, along = _config("col2im", tensor, whole, layout, device, single, dtype)
    arguments = (
        *(0, 0, whole.images, tensor.channels, layout.group_channels, whole.count, along),
        *(*tensor.sizes[1:], *tensor.strides),
        *(*geometry.strides, *geometry.pads_begin, *geometry.dilations, *geometry.kernel),
        *(step // gcd(step, dilation) for step, dilation in axes),
        *(dilation // gcd(step, dilation) for step, dilation in axes),
        *geometry.out,
        *(layout.image, layout.position, layout.group, layout.channel, layout.tap),
    )
    return Im2colStep(
        config, (Address(tensor.number, run.image * tensor.strides[0]), layout.address), arguments, blocks
    )


def _config(
    kernel: Literal["gather", "col2im"],
    tensor: Operand,
    piece: Slice,
    layout: MatrixLayout,
    device: Device,
    single: bool = False,
    dtype: str = "",
) -> tuple[Im2colConfig, int, int]:
    """The config for so many positions of a tensor, its blocks, and how many of them are side by side.

    single: each element is copied once; dtype is that of the matrix, if it is summed.
    """
    grouped = layout.group_channels < tensor.channels and layout.group != layout.group_channels * layout.channel
    wide = piece.length * tensor.channels >= _NARROW
    native = device.capability >= (8, 0)
    config = Im2colConfig(kernel, dtype or tensor.dtype, grouped=grouped, wide=wide, native_bfloat16=native)
    blocks = 2 if wide or (grouped and kernel == "gather") else 4
    config = replace(config, result=tensor.dtype if dtype else "", blocks_per_processor=blocks)
    along = -(-piece.length // config.threads)
    if kernel == "col2im":
        config = replace(config, single=single)
    if kernel == "col2im" and not single:  # a channel has a register (two, in float64) for its sum
        config = replace(config, chunk=config.at_once, blocks_per_processor=min(blocks, 3))
    if single and along * (tensor.channels // 32) >= _ENOUGH_BLOCKS * device.processors:
        config = replace(config, chunk=32)  # more channels share the computations for a position
    return config, along * -(-tensor.channels // config.chunk), along


def pack(W: Operand, matrix: MatrixLayout, device: Device) -> Im2colStep:
    """packed[group, filter, tap, channel] = W[filter, channel, tap]; channels are adjacent.

    matrix.channel is the distance of filters; a group has group_channels of them.
    """
    total = W.images * W.channels
    config = Im2colConfig("pack", W.dtype, wide=total >= _NARROW, native_bfloat16=device.capability >= (8, 0))
    arguments = (
        *(0, 0, total, W.channels, matrix.group_channels, *W.strides[:2], *W.sizes, *W.strides[2:]),
        *(matrix.group, matrix.channel, matrix.tap),
    )
    return Im2colStep(config, (Address(W.number), matrix.address), arguments, -(-total // config.threads))


def add_shares(
    dW: Operand, source: Address, count: int, distance: int, dtype: str, taps_inside: bool, device: Device
) -> Im2colStep:
    """dW = the sum of `count` shares, `distance` bytes apart, each [filter, channel, tap] or [filter, tap, channel]."""
    rows = dW.channels * dW.positions
    total = dW.images * rows
    walkers = 8 if count >= 8 else 1
    config = Im2colConfig("add_shares", dtype, walkers=walkers, taps_inside=taps_inside, result=dW.dtype)
    config = replace(config, wide=total >= _NARROW, native_bfloat16=device.capability >= (8, 0))
    arguments = (
        *(0, 0, total, count, distance, rows, dW.positions if taps_inside else dW.channels, *dW.sizes[1:]),
        *dW.strides,
    )
    return Im2colStep(config, (source, Address(dW.number)), arguments, -(-total // (config.threads // walkers)))


def launch(step: Im2colStep, device: Device) -> Launch:
    """The step's kernel, compiled and loaded if necessary, and its launch."""
    builder = "gradkern.ops.conv.cuda.gemm.im2col_kernel:build"
    kernel = kernel_of_config(device, builder, step.config, arguments=len(step.arguments))
    return Launch(kernel, step.blocks, step.config.threads, step.arguments, changing=(0, 1))
