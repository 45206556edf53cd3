"""What a convolution's sums run over, lifted to three spatial axes: pure integers, no arrays of data.

Both gradients that multiply matrices read a source through a Window: grid position q and tap t see the source's element
steps*q + offset[t]. For dW the grid is Y's, the source X, and the steps are the strides. For dX the source is dY:
i = o*strides + k*dilations - pads_begin says that the input positions of one residue modulo the strides see the same
taps, at consecutive outputs. So dX is cut by residue, and every part is a window with steps of 1: each element of dX is
the result of one matrix product, written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

__all__ = ["Geometry", "Part", "Window"]

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution's sizes; channels and filters are those of one group, triples have one entry per spatial axis."""

    images: int
    group: int
    channels: int
    filters: int
    spatial: Triple
    kernel: Triple
    out: Triple
    strides: Triple
    dilations: Triple
    pads_begin: Triple

    @classmethod
    def of(cls, axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> Geometry:
        rank = len(axes["spatial"])
        return cls(
            images=axes["N"],
            group=attributes["group"],
            channels=axes["C_per_group"],
            filters=axes["M"] // attributes["group"],
            spatial=_lifted(axes["spatial"], 1),
            kernel=_lifted(axes["kernel"], 1),
            out=_lifted(axes["out"], 1),
            strides=_lifted(attributes["strides"], 1),
            dilations=_lifted(attributes["dilations"], 1),
            pads_begin=_lifted(attributes["pads"][:rank], 0),
        )

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """Whether each output sees exactly the input of its own position."""
        return self.kernel == self.strides == (1, 1, 1) and self.spatial == self.out and self.pads_begin == (0, 0, 0)

    def weight_window(self) -> Window:
        """Y's grid over X: column (c, k) at o holds X[c, o*strides + k*dilations - pads_begin]."""
        offsets = (
            tuple(k * dilation - begin for k in range(size))
            for size, dilation, begin in zip(self.kernel, self.dilations, self.pads_begin, strict=True)
        )
        return Window.over(self.spatial, self.out, self.strides, tuple(offsets))

    def upstream_window(self) -> Window:
        """Y's grid over dY itself: one tap, offset 0."""
        return Window.over(self.out, self.out, (1, 1, 1), ((0,), (0,), (0,)))

    def data_parts(self) -> list[Part]:
        """dX cut so that the input positions of one part see the same taps of dY. Together they cover dX once."""
        per_axis = [
            _axis_parts(*sizes)
            for sizes in zip(self.spatial, self.kernel, self.strides, self.dilations, self.pads_begin, strict=True)
        ]
        return [Part.of(self, combination) for combination in product(*per_axis)]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """offsets[axis] has a row (offset, first, last) for each tap of the axis: grid position q sees the source's
    steps*q + offset, which lies inside it exactly where first <= q < last.
    """

    grid: Triple
    steps: Triple
    offsets: tuple[np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def over(cls, source: Triple, grid: Triple, steps: Triple, offsets: tuple[tuple[int, ...], ...]) -> Window:
        first, second, third = (_inside(*axis) for axis in zip(source, grid, steps, offsets, strict=True))
        return cls(grid, steps, (first, second, third))

    @property
    def taps(self) -> int:
        return prod(len(offsets) for offsets in self.offsets)

    @property
    def positions(self) -> int:
        return prod(self.grid)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The input positions that see dY through one window: `phases` interleaved grids, each with its own taps of W.

    Phase h, grid position q is dX's position strides*q + firsts[h] (outside dX for some q at the grid's ends), and the
    window's tap t meets W's tap taps[h, t], one index per axis.
    """

    window: Window
    taps: np.ndarray
    firsts: np.ndarray

    @classmethod
    def of(cls, geometry: Geometry, axes: tuple[_AxisPart, ...]) -> Part:
        phases = list(product(*(axis.phases for axis in axes)))
        taps = [list(product(*(phase.taps for phase in phased))) for phased in phases]
        first, second, third = axes
        grid = first.size, second.size, third.size
        window = Window.over(geometry.out, grid, (1, 1, 1), tuple(axis.offsets for axis in axes))
        firsts = [[phase.first for phase in phased] for phased in phases]
        return cls(window, np.array(taps, np.int64).reshape(len(phases), window.taps, 3), np.array(firsts, np.int64))


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
    """One axis of dX by residue: input i = stride*q + r - begin meets tap k at output q + (r - k*dilation)/stride.

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


def _inside(source: int, grid: int, step: int, offsets: tuple[int, ...]) -> np.ndarray:
    table = [
        (offset, min(max(-(offset // step), 0), grid), min(max((source - 1 - offset) // step + 1, 0), grid))
        for offset in offsets
    ]
    return np.array(table, np.int64).reshape(len(offsets), 3)


def _lifted(values: tuple[int, ...], fill: int) -> Triple:
    first, second, third = (*(fill,) * (3 - len(values)), *values)
    return first, second, third
