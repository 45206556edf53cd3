"""The sizes of a convolution, and the elements that its two matrix products multiply: integers, no arrays of data.

`Geometry` is derived once from a call, for all providers. A provider with kernels for a fixed number of spatial axes
uses `geometry.lifted(rank)`.

On a CPU both products of a convolution read a tensor through a Window: grid position q and filter tap t read the
tensor's element steps*q + offset[t]. For dW the grid is that of dY, the tensor X, and the steps are the strides. For dX
the tensor is dY: by i = o*strides + k*dilations - pads_begin the input positions of one residue modulo the strides use
the same taps, at consecutive outputs. So dX is divided by residue, and every part is a window with steps of 1: each
element of dX is the result of one matrix product, written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axes", "DataPart", "Geometry", "Window"]

Axes = tuple[int, ...]  # one entry per spatial axis
Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution's sizes. channels and filters are those of one group."""

    images: int
    group: int
    channels: int
    filters: int
    spatial: Axes
    kernel: Axes
    out: Axes
    strides: Axes
    dilations: Axes
    pads_begin: Axes
    pads_end: Axes

    @classmethod
    def of(cls, axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> Geometry:
        """From the axes of a checked call, by the names of the contract, and its resolved attributes."""
        rank = len(axes["spatial"])
        return cls(
            images=axes["N"],
            group=attributes["group"],
            channels=axes["C_per_group"],
            filters=axes["M"] // attributes["group"],
            spatial=axes["spatial"],
            kernel=axes["kernel"],
            out=axes["out"],
            strides=attributes["strides"],
            dilations=attributes["dilations"],
            pads_begin=attributes["pads"][:rank],
            pads_end=attributes["pads"][rank:],
        )

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.spatial)

    def lifted(self, rank: int) -> Geometry:
        """The same convolution with `rank` spatial axes: axes of one element precede its own."""
        ones, zeros = (1,) * (rank - self.rank), (0,) * (rank - self.rank)
        return replace(
            self,
            spatial=(*ones, *self.spatial),
            kernel=(*ones, *self.kernel),
            out=(*ones, *self.out),
            strides=(*ones, *self.strides),
            dilations=(*ones, *self.dilations),
            pads_begin=(*zeros, *self.pads_begin),
            pads_end=(*zeros, *self.pads_end),
        )

    def of_axes(self, chosen: slice) -> Geometry:
        """With only these of its spatial axes."""
        axes = ("spatial", "kernel", "out", "strides", "dilations", "pads_begin", "pads_end")
        return replace(self, **{name: getattr(self, name)[chosen] for name in axes})

    @property
    def multiplications(self) -> int:
        """Multiply-adds of either gradient, including those with padding."""
        return self.images * prod(self.out) * self.group * self.filters * self.channels * self.taps

    @property
    def taps(self) -> int:
        """Positions of the filter."""
        return prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """Whether each output depends only on the input of its own position."""
        single = set(self.kernel) | set(self.strides) == {1}
        return single and self.spatial == self.out and not any(self.pads_begin)

    @property
    def taps_overlap(self) -> bool:
        """Whether an element of dX may be a sum over several taps."""
        axes = zip(self.kernel, self.strides, self.dilations, strict=True)
        return any(size > stride // gcd(stride, dilation) for size, stride, dilation in axes)

    def weight_window(self) -> Window:
        """X through the grid of dY: im2col column (c, k) at o holds X[c, o*strides + k*dilations - pads_begin]."""
        offsets = (
            tuple(k * dilation - begin for k in range(size))
            for size, dilation, begin in zip(self.kernel, self.dilations, self.pads_begin, strict=True)
        )
        return Window.over(self.spatial, self.out, self.strides, tuple(offsets))

    def data_parts(self) -> list[DataPart]:
        """Parts of dX whose input positions use the same taps. Together they cover dX once."""
        per_axis = [
            _axis_parts(*sizes)
            for sizes in zip(self.spatial, self.kernel, self.strides, self.dilations, self.pads_begin, strict=True)
        ]
        return [DataPart.of(self, combination) for combination in product(*per_axis)]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """How a tensor is read: offsets[axis] has a row (offset, first, last) for each filter tap along the axis. Grid
    position q reads element steps*q + offset of the tensor: inside it if and only if first <= q < last.
    """

    grid: Axes
    steps: Axes
    offsets: tuple[Table, ...]

    @classmethod
    def over(cls, sizes: Axes, grid: Axes, steps: Axes, offsets: tuple[tuple[int, ...], ...]) -> Window:
        """A tensor of these sizes seen through a grid, with the offsets of the taps along each axis."""
        return cls(grid, steps, tuple(_inside(*axis) for axis in zip(sizes, grid, steps, offsets, strict=True)))

    @property
    def taps(self) -> int:
        return prod(len(offsets) for offsets in self.offsets)


@dataclass(frozen=True, slots=True, eq=False)
class DataPart:
    """The positions of dX that read dY through one window: `phases` interleaved grids, each with its own taps of W.

    Phase h, grid position q is dX's position strides*q + firsts[h] (outside dX for some q at the grid's ends), and the
    window's tap t uses W's tap taps[h, t], one index per axis.
    """

    window: Window
    taps: Table
    firsts: Table

    @classmethod
    def of(cls, geometry: Geometry, axes: tuple[_AxisPart, ...]) -> DataPart:
        phases = list(product(*(axis.phases for axis in axes)))
        taps = [list(product(*(phase.taps for phase in phased))) for phased in phases]
        grid = tuple(axis.size for axis in axes)
        window = Window.over(geometry.out, grid, (1,) * len(axes), tuple(axis.offsets for axis in axes))
        firsts = [[phase.first for phase in phased] for phased in phases]
        table = np.array(taps, np.int64).reshape(len(phases), window.taps, len(axes))
        return cls(window, table, np.array(firsts, np.int64))


@dataclass(frozen=True, slots=True)
class _AxisPhase:
    first: int
    taps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _AxisPart:
    size: int
    offsets: tuple[int, ...]
    phases: tuple[_AxisPhase, ...]


def _axis_parts(size: int, kernel: int, stride: int, dilation: int, begin: int) -> list[_AxisPart]:
    """One axis of dX by residue: input i = stride*q + r - begin uses tap k at output q + (r - k*dilation)/stride.

    Residues whose taps have the same offsets share a part: their columns are the same, only their weights differ.
    """
    by_offsets: dict[tuple[int, ...], list[tuple[int, int, int, tuple[int, ...]]]] = {}
    for start in range(min(size, stride)):
        q, r = divmod(start + begin, stride)
        taps = tuple(k for k in range(kernel) if (k * dilation - r) % stride == 0)
        offsets = tuple((r - k * dilation) // stride for k in taps)
        stop = q + -(-(size - start) // stride)
        by_offsets.setdefault(offsets, []).append((q, stop, r, taps))
    parts: list[_AxisPart] = []
    for offsets, phases in by_offsets.items():
        first, last = min(q for q, *_ in phases), max(stop for _, stop, *_ in phases)
        parts.append(
            _AxisPart(
                size=last - first,
                offsets=tuple(first + offset for offset in offsets),
                phases=tuple(_AxisPhase(stride * first + r - begin, taps) for _, _, r, taps in phases),
            )
        )
    return parts


def _inside(size: int, grid: int, step: int, offsets: tuple[int, ...]) -> Table:
    table = [
        (offset, min(max(-(offset // step), 0), grid), min(max((size - 1 - offset) // step + 1, 0), grid))
        for offset in offsets
    ]
    return np.array(table, np.int64).reshape(len(offsets), 3)
