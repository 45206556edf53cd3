"""Layouts of a convolution's tensors for kernels and products: strides, slices, and the places of filter taps and
residues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.conv.geometry import DataPart, Geometry, Window

__all__ = ["AffineWindow", "Operand", "RegularPart", "Residues", "Slice", "Triple", "triple"]

Triple = tuple[int, int, int]

MOST_RESIDUES = 62  # bits of a number, without the sign


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor with three spatial axes, by its number among a program's operands. strides, in bytes: of images, of
    channels, of the three axes.
    """

    number: int
    dtype: str
    images: int
    channels: int
    sizes: Triple
    strides: tuple[int, int, int, int, int]
    alignment: int

    @classmethod
    def of(cls, tensor: Tensor, number: int) -> Operand:
        missing = 5 - len(tensor.shape)
        images, channels, *sizes = tensor.shape
        first, second, *rest = tensor.strides
        size0, size1, size2 = (*[1] * missing, *sizes)
        stride0, stride1, stride2 = (*[0] * missing, *rest)
        item = tensor.dtype.itemsize
        if tensor.alignment % item or any(each % item for each in tensor.strides):
            raise Refusal("an array's elements are not aligned to their type")
        strides = first, second, stride0, stride1, stride2
        return cls(number, tensor.dtype.name, images, channels, (size0, size1, size2), strides, tensor.alignment)

    @property
    def item(self) -> int:
        return ITEMSIZE[self.dtype]

    @property
    def positions(self) -> int:
        return prod(self.sizes)

    @property
    def distance(self) -> int | None:
        """Elements from one position to the next, if they are equidistant; 0 for one position."""
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
        """Whether the positions of all images are equidistant."""
        distance = self.distance
        if self.images == 1 or self.positions == 1:
            return distance is not None
        return distance is not None and self.positions * distance == self.image

    @property
    def step(self) -> int:
        """Elements from position to position over all images, if these are equidistant."""
        return self.image if self.positions == 1 else self.distance or 0

    def is_matrix(self, taps_inside: bool) -> bool:
        """For W: whether each filter is contiguous, ordered by channel and tap, or by tap and channel."""
        sizes = (self.channels, *self.sizes) if taps_inside else (*self.sizes, self.channels)
        strides = self.strides[1:] if taps_inside else (*self.strides[2:], self.strides[1])
        expected = self.item
        for size, stride in zip(sizes[::-1], strides[::-1], strict=True):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return self.images == 1 or self.strides[0] >= expected


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
class AffineWindow:
    """A Window with equidistant taps: position q of the grid and tap t read the tensor's element
    steps*q + firsts + spacings*t.
    """

    grid: Triple
    steps: Triple
    taps: Triple
    firsts: Triple
    spacings: Triple

    @property
    def positions(self) -> int:
        return prod(self.grid)

    @classmethod
    def of(cls, window: Window) -> AffineWindow:
        offsets = [axis[:, 0].tolist() for axis in window.offsets]
        return cls.over(triple(window.grid), triple(window.steps), offsets)

    @classmethod
    def over(cls, grid: Triple, steps: Triple, offsets: list[list[int]]) -> AffineWindow:
        """With each axis' offsets of its taps; these must be equidistant."""
        spacings = [each[1] - each[0] if len(each) > 1 else 0 for each in offsets]
        for each, spacing in zip(offsets, spacings, strict=True):
            if any(later - earlier != spacing for earlier, later in pairwise(each)):
                raise Refusal("the taps of a part are not equidistant")
        (t0, t1, t2), (f0, f1, f2) = map(len, offsets), (each[0] if each else 0 for each in offsets)
        return cls(grid, steps, (t0, t1, t2), (f0, f1, f2), (spacings[0], spacings[1], spacings[2]))


@dataclass(frozen=True, slots=True)
class RegularPart:
    """A part of dX in the grid of all residues: on each axis `phases` residues from `first` on. Phase h of an axis and
    tap t of the grid use W's tap origin + h*by_phase + t*by_tap.
    """

    first: Triple
    phases: Triple
    grid: AffineWindow
    origin: Triple
    by_phase: Triple
    by_tap: Triple


@dataclass(frozen=True, slots=True)
class Residues:
    """How dX is divided: element x of an axis has the residue (x + before) % steps, at (x + before) // steps of the
    grid.

    `slots` residues from `lows` on have results, if their bit is set in `live`.
    """

    steps: Triple
    before: Triple
    grid: Triple
    lows: Triple
    slots: Triple
    live: Triple
    start: Triple  # of the grid: pads_begin // steps

    @property
    def positions(self) -> int:
        return prod(self.grid)

    @classmethod
    def of(cls, geometry: Geometry, parts: list[DataPart]) -> Residues:
        steps, begin = triple(geometry.strides), triple(geometry.pads_begin)
        if max(steps) > MOST_RESIDUES:
            raise Refusal(f"strides of more than {MOST_RESIDUES}")
        start = triple(b // s for b, s in zip(begin, steps, strict=True))
        before = triple(b % s for b, s in zip(begin, steps, strict=True))
        grid = triple((n - 1 + b) // s + 1 for n, b, s in zip(geometry.spatial, before, steps, strict=True))
        found = [
            sorted({(first + b) % s for part in parts for first in part.firsts[:, axis].tolist()})
            for axis, (b, s) in enumerate(zip(begin, steps, strict=True))
        ]
        lows, slots = triple(each[0] for each in found), triple(each[-1] - each[0] + 1 for each in found)
        return cls(steps, before, grid, lows, slots, triple(sum(1 << r for r in each) for each in found), start)

    def of_parts(self, parts: list[DataPart]) -> Iterator[RegularPart]:
        """Each part as a whole if its residues and their taps of W are consecutive, else residue by residue."""
        for part in parts:
            whole = self._of_part(part)
            if whole is not None:
                yield whole
                continue
            for taps, first in zip(part.taps, part.firsts, strict=True):
                single = self._of_part(DataPart(part.window, taps[None], first[None]))
                if single is None:
                    raise Refusal("the taps of a residue are not equidistant")
                yield single

    def _of_part(self, part: DataPart) -> RegularPart | None:
        order = np.lexsort(part.firsts.T[::-1])
        at = part.firsts[order] + [b + s * q for b, s, q in zip(self.before, self.steps, self.start, strict=True)]
        found = [sorted(set((at[:, axis] % self.steps[axis]).tolist())) for axis in range(3)]
        phases = triple(map(len, found))
        # the part's grid begins elsewhere
        away = [start - first // s for start, first, s in zip(self.start, at[0].tolist(), self.steps, strict=True)]
        offsets = [(axis[:, 0] + by).tolist() for axis, by in zip(part.window.offsets, away, strict=True)]
        grid = AffineWindow.over(self.grid, (1, 1, 1), offsets)
        table = part.taps[order].reshape(*phases, *grid.taps, 3)
        origin = triple(table[(0,) * 6].tolist())
        by_phase, by_tap = (triple(_distance(table, 3 * kind + axis, axis) for axis in range(3)) for kind in range(2))
        where = np.indices((*phases, *grid.taps))
        regular = all(
            (table[..., a] == origin[a] + where[a] * by_phase[a] + where[3 + a] * by_tap[a]).all() for a in range(3)
        )
        if not regular or any(each[-1] - each[0] >= len(each) for each in found):
            return None
        return RegularPart(triple(each[0] for each in found), phases, grid, origin, by_phase, by_tap)


def _distance(table: np.ndarray, axis: int, of: int) -> int:
    """The step of W's tap along its axis `of` from one phase or tap to the next."""
    if table.shape[axis] < 2:
        return 0
    return int(table[tuple(int(each == axis) for each in range(6))][of] - table[(0,) * 6][of])


def triple(values: Iterable[int]) -> Triple:
    first, second, third = values
    return first, second, third
