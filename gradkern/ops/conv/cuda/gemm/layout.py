"""Layouts of a convolution's tensors for kernels and products: strides, slices, and the places of filter taps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.conv.geometry import Geometry

Triple = tuple[int, int, int]

_ZERO, _ONE = (0, 0, 0), (1, 1, 1)


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
    """How a tensor is read: position q of the grid and tap t read its element steps*q + firsts + spacings*t."""

    grid: Triple
    steps: Triple
    taps: Triple
    firsts: Triple
    spacings: Triple

    @property
    def positions(self) -> int:
        return prod(self.grid)

    @classmethod
    def of_X(cls, geometry: Geometry) -> AffineWindow:
        """X through the grid of dY or Y: output o and tap k read X[o*strides + k*dilations - pads_begin]."""
        begins = triple(-begin for begin in geometry.pads_begin)
        steps, taps, spacings = map(triple, (geometry.strides, geometry.kernel, geometry.dilations))
        return cls(triple(geometry.out), steps, taps, begins, spacings)

    @classmethod
    def of_dY(cls, geometry: Geometry) -> AffineWindow:
        """dY through the grid of X, for strides of 1: input i and tap k read dY[i + pads_begin - k*dilations]."""
        spacings = triple(-dilation for dilation in geometry.dilations)
        return cls(triple(geometry.spatial), _ONE, triple(geometry.kernel), triple(geometry.pads_begin), spacings)

    @classmethod
    def plain(cls, sizes: Triple) -> AffineWindow:
        """A tensor of these sizes through its own grid."""
        return cls(sizes, _ONE, _ONE, _ZERO, _ZERO)


def triple(values: Iterable[int]) -> Triple:
    first, second, third = values
    return first, second, third
