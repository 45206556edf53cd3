"""The moves between a convolution's tensors and the matrices of its products, from geometry to launches.

A move names what it does to which operand; operands are numbered, and their addresses come with the call. The kernels
are in `cuda_columns`, which is loaded where one of them must be compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache as remembered
from inspect import signature
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gradkern.call import Tensor
from gradkern.cuda import cache
from gradkern.cuda.columns import ITEMSIZE
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, load
from gradkern.ops.conv_grad.geometry import Part, Triple, Window
from gradkern.search.candidate import Unfit

__all__ = ["Form", "Grid", "Layout", "Move", "Place", "Slice", "View", "add_shares", "compiled", "gather", "launch"]
__all__ += ["pack", "scatter"]

_NARROW = 1 << 30  # counts below it fit 32 bits, rounded up to whole blocks too


@dataclass(frozen=True, slots=True)
class Form:
    """All that is bound when a kernel is compiled."""

    kernel: Literal["gather", "scatter", "pack", "add_shares"]
    word: str  # the type an access is made of; of channels in vectors float32, whatever they are
    words: int = 1  # of one access
    vector_channels: int = 1
    lanes: Literal["positions", "channels"] = "positions"
    grouped: bool = False  # channels of the matrix lie at one distance only within a group
    wide: bool = False  # counts need 64 bits
    result: str = ""
    walkers: int = 1
    taps_inside: bool = True
    native_bfloat16: bool = True
    threads: int = 256
    at_once: int = 8  # loads a thread has under way
    chunk: int = 16  # channels of a thread that has one position
    blocks_per_processor: int = 4

    @property
    def vector_bytes(self) -> int:
        return self.words * ITEMSIZE[self.word]

    @property
    def shared_bytes(self) -> int:
        return self.threads * ITEMSIZE[self.word] if self.walkers > 1 else 0


@dataclass(frozen=True, slots=True)
class Place:
    """An address: so many bytes after an operand's."""

    operand: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A tensor with three spatial axes. strides, in bytes: of images, of channels, of the three."""

    operand: int
    dtype: str
    images: int
    channels: int
    sizes: Triple
    strides: tuple[int, int, int, int, int]
    alignment: int

    @classmethod
    def of(cls, tensor: Tensor, operand: int) -> View:
        missing = 5 - len(tensor.shape)
        images, channels, *sizes = tensor.shape
        first, second, *rest = tensor.strides
        size0, size1, size2 = (*[1] * missing, *sizes)
        stride0, stride1, stride2 = (*[0] * missing, *rest)
        item = tensor.dtype.itemsize
        if tensor.alignment % item or any(each % item for each in tensor.strides):
            raise Unfit("an array's elements lie between the places of their type")
        strides = first, second, stride0, stride1, stride2
        return cls(operand, tensor.dtype.name, images, channels, (size0, size1, size2), strides, tensor.alignment)

    @property
    def item(self) -> int:
        return ITEMSIZE[self.dtype]

    @property
    def positions(self) -> int:
        return prod(self.sizes)

    @property
    def distance(self) -> int | None:
        """Elements from one position to the next, if there is one such distance; 0 where there is one position."""
        distance, expected = 0, 0
        for size, stride in zip(self.sizes[::-1], self.strides[:1:-1], strict=True):
            if size == 1:
                continue
            if not expected:
                distance = expected = stride
            if stride != expected:
                return None
            expected *= size
        return distance // self.item

    @property
    def image(self) -> int:
        """Elements from one image to the next."""
        return self.strides[0] // self.item

    @property
    def channel(self) -> int:
        """Elements from one channel to the next."""
        return self.strides[1] // self.item

    @property
    def endless(self) -> bool:
        """Whether the positions of all images lie at one distance."""
        distance = self.distance
        if self.images == 1 or self.positions == 1:
            return distance is not None
        return distance is not None and self.positions * distance == self.image

    @property
    def step(self) -> int:
        """Elements from position to position of all images, where they are endless."""
        return self.image if self.positions == 1 else self.distance or 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Images from `image` on and positions from `start` on; several images with all their positions, or part of one."""

    image: int
    images: int
    start: int
    count: int

    @property
    def length(self) -> int:
        return self.images * self.count


@dataclass(frozen=True, slots=True)
class Grid:
    """Grid position q and tap t see element steps*q + firsts + spacings*t of a tensor."""

    grid: Triple
    steps: Triple
    taps: Triple
    firsts: Triple
    spacings: Triple

    @property
    def positions(self) -> int:
        return prod(self.grid)

    @classmethod
    def of(cls, window: Window) -> Grid:
        offsets = [axis[:, 0].tolist() for axis in window.offsets]
        return cls._of(window.grid, window.steps, offsets)

    @classmethod
    def of_phases(cls, part: Part, strides: Triple) -> tuple[Grid, np.ndarray]:
        """Where in dX the results of a part belong, its phases as taps; and the taps of W each of them has, in order.

        Phases are brought into the order of their positions, in which W's taps are at one distance too.
        """
        order = np.lexsort(part.firsts.T[::-1])
        firsts = part.firsts[order]
        offsets = [sorted(set(firsts[:, axis].tolist())) for axis in range(3)]
        return cls._of(part.window.grid, strides, offsets), part.taps[order]

    @classmethod
    def _of(cls, grid: Triple, steps: Triple, offsets: list[list[int]]) -> Grid:
        spacings = [each[1] - each[0] if len(each) > 1 else 0 for each in offsets]
        for each, spacing in zip(offsets, spacings, strict=True):
            if any(later - earlier != spacing for earlier, later in pairwise(each)):
                raise Unfit("the taps of a part lie at several distances")
        (t0, t1, t2), (f0, f1, f2) = map(len, offsets), (each[0] if each else 0 for each in offsets)
        return cls(grid, steps, (t0, t1, t2), (f0, f1, f2), (spacings[0], spacings[1], spacings[2]))


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


def gather(view: View, grid: Grid, piece: Slice, layout: Layout, which: Device) -> Move:
    """matrix[image, p, channel, tap] = tensor[image, channel, steps*q + ...], 0 outside."""
    return _move("gather", view, grid, piece, layout, which)


def scatter(view: View, grid: Grid, piece: Slice, layout: Layout, which: Device) -> Move:
    """tensor[image, channel, steps*q + ...] = matrix[image, p, channel, tap], where that exists."""
    return _move("scatter", view, grid, piece, layout, which)


def _move(
    kernel: Literal["gather", "scatter"], view: View, grid: Grid, piece: Slice, layout: Layout, which: Device
) -> Move:
    item = view.item
    form = Form(kernel, _word(view.dtype), native_bfloat16=which.capability >= (8, 0))
    grouped = layout.group_channels < view.channels and layout.group != layout.group_channels * layout.channel
    wide = piece.length * view.channels >= _NARROW
    first = piece.image * view.strides[0]
    by_channels = layout.channel == item and (view.strides[1] == item or view.channels == 1)
    if by_channels:
        width = _width(view, piece, layout, first)
        if width * item >= 4:
            form = replace(form, word="float32", words=width * item // 4)
        form = replace(form, lanes="channels", vector_channels=width, at_once=4, blocks_per_processor=1 if wide else 3)
        along, blocks = 1, -(-piece.length * (view.channels // width) // (form.threads * form.at_once))
    else:
        along = -(-piece.length // form.threads)
        blocks = along * -(-view.channels // form.chunk)
    arguments = (
        *(0, 0, piece.images, view.channels, layout.group_channels, piece.start, piece.count),
        *(along, *grid.grid[1:], *view.sizes, *view.strides),
        *(*grid.steps, *grid.taps, *grid.firsts, *grid.spacings),
        *(layout.image, layout.position, layout.group, layout.channel, layout.tap),
    )
    return Move(
        replace(form, grouped=grouped, wide=wide), (Place(view.operand, first), layout.place), arguments, blocks
    )


def _word(dtype: str) -> str:
    """The type that moves single elements: of 16 bits it must be the very one, for it is widened and rounded again."""
    return dtype if ITEMSIZE[dtype] != 4 else "float32"


def _width(view: View, piece: Slice, layout: Layout, first: int) -> int:
    """How many channels one access takes, at most 16 bytes of them."""
    width = 16 // view.item
    per_group = min(layout.group_channels, view.channels)
    strides = [view.strides[0] if piece.images > 1 else 0, *view.strides[2:], first]
    strides += [layout.image, layout.position, layout.group, layout.tap, layout.place.offset]
    while width > 1:
        size = width * view.item
        if per_group % width == 0 and view.alignment % size == 0 and not any(each % size for each in strides):
            return width
        width //= 2
    return 1


def pack(W: View, taps: np.ndarray, counts: tuple[Triple, Triple], filters: int, matrix: Layout, which: Device) -> Move:
    """packed[filter, phase, tap, channel] = W[filter, channel, taps[phase, tap]], group by group of `filters`.

    counts are those of phases and of taps, per axis. Of `matrix`, channel is the distance of filters, position that of
    phases; channels of W lie end to end.
    """
    phases, inside = counts
    table = taps.reshape(*phases, *inside, 3)
    origin = table[(0,) * 6]
    beside = [[_beside(table, origin, 3 * kind + axis, axis) for axis in range(3)] for kind in range(2)]
    where = np.indices((*phases, *inside))
    rebuilt = [origin[a] + where[a] * beside[0][a] + where[3 + a] * beside[1][a] for a in range(3)]
    if not all((table[..., a] == rebuilt[a]).all() for a in range(3)):
        raise Unfit("the taps of a part lie at several distances")
    start = sum(int(tap) * stride for tap, stride in zip(origin, W.strides[2:], strict=True))
    form = Form("pack", _word(W.dtype), native_bfloat16=which.capability >= (8, 0))
    total = W.images * prod(phases) * W.channels
    arguments = (
        *(0, 0, total, W.channels, filters, *phases, *W.strides[:2]),
        *(step * stride for step, stride in zip(beside[0], W.strides[2:], strict=True)),
        *inside,
        *(step * stride for step, stride in zip(beside[1], W.strides[2:], strict=True)),
        *(matrix.group, matrix.channel, matrix.position, matrix.tap),
    )
    form = replace(form, wide=total >= _NARROW)
    return Move(form, (Place(W.operand, start), matrix.place), arguments, -(-total // form.threads))


def _beside(table: np.ndarray, origin: np.ndarray, axis: int, of: int) -> int:
    """How far W's tap moves along its axis `of` from one phase or tap to the next."""
    if table.shape[axis] < 2:
        return 0
    return int(table[tuple(int(each == axis) for each in range(6))][of] - origin[of])


def add_shares(
    dW: View, source: Place, count: int, distance: int, dtype: str, taps_inside: bool, which: Device
) -> Move:
    """dW = the sum of `count` shares, `distance` bytes apart, each [filter, channel, tap] or [filter, tap, channel]."""
    rows = dW.channels * dW.positions
    total = dW.images * rows
    walkers = 8 if count >= 8 else 1
    form = Form("add_shares", dtype, walkers=walkers, taps_inside=taps_inside, result=dW.dtype)
    form = replace(form, wide=total >= _NARROW, native_bfloat16=which.capability >= (8, 0))
    arguments = (
        *(0, 0, total, count, distance, rows, dW.positions if taps_inside else dW.channels, *dW.sizes[1:]),
        *dW.strides,
    )
    return Move(form, (source, Place(dW.operand)), arguments, -(-total // (form.threads // walkers)))


def launch(move: Move, which: Device) -> Launch:
    """The move's kernel on the device, compiled and loaded where it is not, and its launch."""
    key = _key(move.form, which.capability)

    def fetched() -> Any:
        return cache.fetch(key, lambda: compiled(move.form, which.capability))

    kernel = load(key, which, fetched, move.form.shared_bytes, 1)
    return Launch(kernel, move.blocks, move.form.threads, move.arguments, changing=(0, 1))


@remembered
def _key(form: Form, capability: tuple[int, int]) -> str:
    return cache.key_of(Path(__file__).parent, repr(form), capability)


def compiled(form: Form, capability: tuple[int, int]) -> Any:
    """The form's kernel in machine code."""
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.conv_grad.cuda_columns import build

    kernel = build(form)
    arguments = len(signature(kernel).parameters)
    return compile_kernel(kernel, arguments, capability, form.threads, form.blocks_per_processor)
