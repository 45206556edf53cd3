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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        axes = zip(self.kernel, self.dilations, self.pads_begin, strict=True)
        offsets = tuple(tuple(k * dilation - begin for k in range(size)) for size, dilation, begin in axes)
        return Window(self.out, self.strides, offsets)

    def data_parts(self) -> list[DataPart]:
        """Parts of dX whose input positions use the same taps. Together they cover dX once."""
        per_axis = [
            _axis_parts(*sizes)
            for sizes in zip(self.spatial, self.kernel, self.strides, self.dilations, self.pads_begin, strict=True)
        ]
        parts: list[DataPart] = []
        for axes in product(*per_axis):
            grid, offsets = tuple(axis.size for axis in axes), tuple(axis.offsets for axis in axes)
            window = Window(grid, (1,) * self.rank, offsets)
            firsts = np.array(list(product(*(axis.firsts for axis in axes))), np.int64)
            taps = [list(product(*phase)) for phase in product(*(axis.taps for axis in axes))]
            parts.append(DataPart(window, np.array(taps, np.int64).reshape(len(taps), window.taps, self.rank), firsts))
        return parts


@dataclass(frozen=True, slots=True)
class Window:
    """How a tensor is read: grid position q and a tap read its element steps*q + offset, if there is one; along each
    axis, offsets has one for each tap.
    """

    grid: Axes
    steps: Axes
    offsets: tuple[Axes, ...]

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


class _AxisPart(NamedTuple):
    """size and offsets are of the window; firsts and taps have an entry for each phase."""

    size: int
    offsets: Axes
    firsts: Axes
    taps: tuple[Axes, ...]


def _axis_parts(size: int, kernel: int, stride: int, dilation: int, begin: int) -> list[_AxisPart]:
    """One axis of dX by residue: input i = stride*q + r - begin uses tap k at output q + (r - k*dilation)/stride.

    Residues whose taps have the same offsets share a part: their columns are the same, only their weights differ.
    """
    by_offsets: dict[Axes, list[tuple[int, int, int, Axes]]] = {}
    for start in range(min(size, stride)):
        q, r = divmod(start + begin, stride)
        taps = tuple(k for k in range(kernel) if (k * dilation - r) % stride == 0)
        offsets = tuple((r - k * dilation) // stride for k in taps)
        stop = q + -(-(size - start) // stride)
        by_offsets.setdefault(offsets, []).append((q, stop, r, taps))
    parts: list[_AxisPart] = []
    for offsets, phases in by_offsets.items():
        begins, stops, residues, taps = zip(*phases, strict=True)
        first = min(begins)
        seen, firsts = tuple(first + offset for offset in offsets), tuple(stride * first + r - begin for r in residues)
        parts.append(_AxisPart(max(stops) - first, seen, firsts, taps))
    return parts
