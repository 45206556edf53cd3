"""Conv and ConvGrad by matrix products whose column matrix is never made: its rows are the tensor's own.

    Y[m, p] = B[m] + sum over c, k of  W[m, c, k] * X[row of (c, k), p + distance[k]]
    dX[(h, c), p] = sum over m, t of  W[m, c, taps[h, t]] * dY[row of (m, t), p + distance[t]]     for each part of dX
    dW[m, (c, k)] = sum over p of  dY[m, p] * X[row of (c, k), p + distance[k]]

A slice is a range of positions, over all images, and of groups. Its rows stay in the cache for the product, and
scratch does not grow with the problem.

Each channel is a row, with the zeros that the taps need between its lines. The grid's positions (image, q0, q1, q2) are
counted in one number, with pitches that leave a gap behind each line and plane. A gap serves the taps that look beyond
a line's end and those that look before the next one's begin. Then every tap sees a whole row at one distance, whatever
the position: rows of a column matrix that is never made.

Where the grid steps over the tensor, its elements are sorted by their residues modulo the steps: a channel has a row
for each residue that some tap meets. And where an axis is short, so that its gaps would be much of what is computed, a
channel has a row for each of that axis's taps instead, without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as combinations
from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call, Refusal
from gradkern.cpu import threads
from gradkern.cpu.element_types import arithmetic, kernel_dtype
from gradkern.ops.conv.cpu.exact import sum_products
from gradkern.ops.conv.cpu.implicit_kernels import DOT_BLOCKS, PANELS_PER_TASK, dot, fill, pack_panels, product
from gradkern.ops.conv.cpu.microkernel import DOT_FILTERS, DOT_ROWS, PANEL, lanes, positions_of_block
from gradkern.ops.conv.geometry import Axes, Geometry, Table, Window
from gradkern.strides import is_dense

SLICE_BYTES = 4 << 20  # of a slice's rows
BLOCKS_PER_TILE = 10  # of positions
CHUNK = 320  # rows of the column matrix that are summed up before the sum is stored: a panel of them fits the L1 cache
# To fill an element of a row takes as long as so many multiply-adds, and in lines of so many elements twice as long.
_FILL, _SHORT_LINE = 40, 20

_TRIPLE = types.UniTuple(types.int64, 3)
_TABLE = types.Array(types.int64, 2, "C")
_VECTOR = types.Array(types.int64, 1, "C")


class Padded:
    """The rows of a tensor of `sizes` seen through a window.

    pitches    positions along each axis, gaps included
    firsts     for each of a channel's rows, the element of each axis at position 0; from one position to the next the
               element steps by window.steps
    row_of_tap, distances   a tap sees this one of a channel's rows, so far behind a position
    """

    def __init__(self, window: Window, sizes: Axes, expanded: tuple[bool, ...]) -> None:
        self.grid, self.steps = window.grid, window.steps
        shape = [len(offsets) for offsets in window.offsets]
        firsts, distances = np.zeros((3, prod(shape)), np.int64), np.zeros((3, prod(shape)), np.int64)
        pitches: list[int] = []
        for axis, (taps, tap) in enumerate(zip(window.offsets, np.indices(shape).reshape(3, -1), strict=True)):
            size, grid, step = sizes[axis], window.grid[axis], window.steps[axis]
            offsets = np.array(taps, np.int64)
            if expanded[axis] or not len(offsets):
                firsts[axis] = offsets[tap]
                pitches.append(grid)
                continue
            shifts = offsets // step
            low, high = int(shifts.min()), int(shifts.max())
            firsts[axis] = (step * low + offsets % step)[tap]
            distances[axis] = (shifts - low)[tap]
            needed = min(-(-size // step), grid + high) - low, grid + high - low - max(-low, 0)
            pitches.append(max(grid, *needed))
        self.pitches: Axes = tuple(pitches)
        self.firsts, rows = np.unique(firsts.T, axis=0, return_inverse=True)
        self.firsts = np.ascontiguousarray(self.firsts)
        self.row_of_tap = rows.reshape(-1)
        self.distances: Table = (distances[0] * pitches[1] + distances[1]) * pitches[2] + distances[2]
        self.halo = int(self.distances.max(initial=0))

    @classmethod
    def cheapest(cls, window: Window, sizes: Axes, results: int) -> Padded:
        """The rows that cost least time, where each row of the column matrix serves so many results."""
        free = [(False, True) if len(offsets) > 1 else (False,) for offsets in window.offsets]
        choices = [cls(window, sizes, expanded) for expanded in combinations(*free)]
        return min(choices, key=lambda padded: padded._cost(results))

    def _cost(self, results: int) -> float:
        filled = len(self.firsts) * _FILL * (1 + (_SHORT_LINE / max(self.pitches[2], 1)) ** 2)
        return self.positions * (filled + len(self.distances) * results)

    @property
    def positions(self) -> int:
        """Of one image, gaps included."""
        return prod(self.pitches)

    def offsets(self, channels: int, pitch: int) -> Table:
        """Where the rows of the column matrix begin, (channel, tap), if a row's elements are `pitch`."""
        rows = np.arange(channels)[:, None] * len(self.firsts) + self.row_of_tap
        return (rows * pitch + self.distances).reshape(-1)


class _Rows:
    """A tensor's rows, a slice of the positions at a time; `beside` is how many elements more a position takes, `most`
    how many bytes a slice is to have at most."""

    def __init__(
        self, dtype: np.dtype, geometry: Geometry, channels: int, padded: Padded, beside: int, most: int, limit: int
    ) -> None:
        self.padded, self.channels = padded, channels
        self.of_group = channels * len(padded.firsts)
        self._dtype, item = arithmetic(dtype), arithmetic(dtype).itemsize
        block = positions_of_block(self._dtype)
        positions = geometry.images * padded.positions
        per_position = max(self.of_group + beside, 1) * item
        around = self.of_group * (padded.halo + 2 * block) * item  # what a slice's rows have more than its positions
        budget = min(limit, max(most, 2 * around)) - around
        longest = budget // per_position // block * block
        if longest < min(block, positions):
            short = per_position * block - budget
            raise Refusal(f"needs at least {short} bytes of scratch more than the policy's workspace_limit allows")
        slices = max(-(-positions // max(longest, 1)), 1)
        self.length = max(-(-positions // (slices * block)) * block, block)
        # Rows whose distance in memory is a power of two would share a few lines of the cache: an odd number of 64.
        self.pitch = (-(-(self.length + padded.halo + block) // 16) | 1) * 16
        of_group = (self.of_group * self.pitch + beside * self.length) * item
        self.groups = max(1, min(geometry.group, min(limit, most) // max(of_group, 1)))
        self.nbytes = self.groups * of_group
        self._positions, self._all_groups = positions, geometry.group
        self._fill = _filler(dtype)

    def slices(self, source: np.ndarray) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
        """Of each slice: its first group and their number, its first position and their number, and its rows."""
        memory, seen = np.empty((self.groups * self.of_group, self.pitch), self._dtype), self.padded
        for group in range(0, self._all_groups, self.groups):
            groups = min(self.groups, self._all_groups - group)
            rows = memory[: groups * self.of_group]
            for start in range(0, self._positions, self.length):
                what = source, group * self.channels, start, self.pitch, seen.pitches, seen.steps, seen.firsts, rows
                threads.run(self._fill, len(rows), 2 * rows.nbytes, *what)
                yield group, groups, start, min(self.length, self._positions - start), rows


class _Product:
    """W, packed as panels, times the columns of a tensor; each element of the target is written once."""

    def __init__(
        self, dtype: np.dtype, geometry: Geometry, window: Window, taps: Table, firsts: Table, of_data: bool, limit: int
    ) -> None:
        self._dtype, self._of_data, self._taps, self._firsts = arithmetic(dtype), of_data, taps, firsts
        self._steps, sizes = (geometry.strides, geometry.out) if of_data else ((1, 1, 1), geometry.spatial)
        rows, self._channels = geometry.channels, geometry.filters
        if of_data:
            rows, self._channels = self._channels, rows
        panels = -(-len(firsts) * self._channels // PANEL)
        padded = Padded.cheapest(window, sizes, panels * PANEL)
        self._panels = (geometry.group, panels, rows * window.taps, PANEL)
        item = self._dtype.itemsize
        weights = geometry.group * panels * rows * window.taps * PANEL * item
        self._block = positions_of_block(self._dtype)
        results = threads.threads() * PANELS_PER_TASK * PANEL * BLOCKS_PER_TILE * self._block * item
        self._rows = _Rows(dtype, geometry, rows, padded, 0, SLICE_BYTES, limit - weights - results)
        self.scratch = weights + results + self._rows.nbytes
        self._tile = min(BLOCKS_PER_TILE * self._block, self._rows.length)
        chunks = -(-rows * window.taps // CHUNK)
        self._chunk = -(-rows // max(chunks, 1)) or 1
        self._offsets = padded.offsets(self._chunk, self._rows.pitch)
        seen, used = numba.from_dtype(kernel_dtype(dtype)), numba.from_dtype(self._dtype)
        i, matrix = types.int64, types.Array(used, 2, "C")
        packed, source = types.Array(used, 4, "C"), types.Array(seen, 5, "A", readonly=True)
        taps_type = types.Array(types.int64, 3, "C")
        self._pack = pack_panels(threads.QUEUE, source, i, types.boolean, taps_type, packed)
        self._product = product(
            threads.QUEUE, packed, i, matrix, i, _VECTOR, i, types.Array(used, 1, "C", readonly=True), i, i, i, i,
            _TRIPLE, _TRIPLE, _TRIPLE, _TABLE, i, types.Array(seen, 5, "A"),
        )  # fmt: skip

    def __call__(self, source: np.ndarray, W: np.ndarray, bias: np.ndarray, target: np.ndarray) -> None:
        rows, seen = self._rows, self._rows.padded
        panels = np.empty(self._panels, self._dtype)
        what = W, self._channels, self._of_data, self._taps, panels
        threads.run(self._pack, self._panels[0] * self._panels[1], 2 * panels.nbytes, *what)
        parts = -(-self._panels[1] // PANELS_PER_TASK)
        chunk = max(1, self._chunk * len(seen.firsts))
        for group, groups, start, count, filled in rows.slices(source):
            tasks = groups * -(-count // self._tile) * parts
            where = start, count, self._tile, self._block, seen.grid, seen.pitches, self._steps, self._firsts
            what = panels, group, filled, rows.of_group, self._offsets, chunk, bias, *where, self._channels, target
            threads.run(self._product, tasks, 2 * filled.nbytes, *what)


class ImplicitGemm:
    """Computes Y, or the wanted ones of dX and dW."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        dtype, self._products, self._weights = call.inputs["W"].dtype, list[_Product](), None
        self._source, self._target = ("X", "Y") if "Y" in call.outputs else ("dY", "dX")
        if "Y" in call.outputs:
            taps = np.moveaxis(np.indices(geometry.kernel), 0, -1).reshape(1, -1, 3)  # one phase of them
            what = geometry.weight_window(), np.ascontiguousarray(taps, np.int64), np.zeros((1, 3), np.int64)
            self._products = [_Product(dtype, geometry, *what, False, limit)]
        for part in geometry.data_parts() if "dX" in call.outputs else []:
            self._products.append(_Product(dtype, geometry, part.window, part.taps, part.firsts, True, limit))
        if "dW" in call.outputs:
            self._weights = _WeightGradient(call, geometry, limit)
        steps = self._products if self._weights is None else [*self._products, self._weights]
        self.scratch = max((step.scratch for step in steps), default=0)

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> None:
        if self._weights is not None:
            self._weights(arrays["dY"], arrays["X"], arrays["dW"])
        for each in self._products:
            each(arrays[self._source], arrays["W"], arrays["B"], arrays[self._target])


class _WeightGradient:
    """dW += dY * columns(X)^T over the slices of positions; the sum is kept in the arithmetic type."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        tensor, dtype = call.outputs["dW"], call.inputs["X"].dtype
        self._seen, self._dtype = dtype, arithmetic(dtype)
        self._geometry, window = geometry, geometry.weight_window()
        padded = Padded.cheapest(window, geometry.spatial, geometry.filters)
        self._lanes = lanes(self._dtype)
        self._total = (geometry.group, geometry.filters, geometry.channels * geometry.taps)
        self._weights = geometry.channels, geometry.taps
        self._filters = geometry.filters
        self._in_place = tensor.dtype == self._dtype and is_dense(tensor)
        item, total = self._dtype.itemsize, geometry.group * geometry.filters * geometry.channels * geometry.taps
        fixed = 0 if self._in_place else total * item
        beside, most = geometry.filters + DOT_FILTERS, max(SLICE_BYTES, total * item)  # each slice adds to all of dW
        self._rows = _Rows(dtype, geometry, geometry.channels, padded, beside, most, limit - fixed)
        self.scratch = fixed + self._rows.nbytes
        table = padded.offsets(geometry.channels, self._rows.pitch)
        self._offsets = np.concatenate((table, np.resize(table[-1:], -len(table) % DOT_ROWS)))
        self._fill = _filler(dtype)
        self._origin = np.zeros((1, 3), np.int64)
        used, i = numba.from_dtype(self._dtype), types.int64
        matrix, cube = types.Array(used, 2, "C"), types.Array(used, 3, "C")
        self._dot = dot(threads.QUEUE, matrix, i, matrix, i, _VECTOR, i, i, cube)

    def __call__(self, dY: np.ndarray, X: np.ndarray, dW: np.ndarray) -> None:
        total = self._sum(dY, X, dW)
        if not np.isfinite(total).all():  # a zero of dY's gaps may have met an infinity of X
            sum_products(self._geometry, dY.view(self._seen), X.view(self._seen), total.reshape(-1, *self._weights))
        if not self._in_place:
            dW[...] = total.reshape(dW.shape)

    def _sum(self, dY: np.ndarray, X: np.ndarray, dW: np.ndarray) -> np.ndarray:
        rows, filters, seen = self._rows, self._filters, self._rows.padded
        total = (dW if self._in_place else np.empty(dW.shape, self._dtype)).reshape(self._total)
        total[...] = 0
        upstream = np.empty((rows.groups * filters + DOT_FILTERS, rows.length), self._dtype)
        upstream[rows.groups * filters :] = 0  # read and not used, but arithmetic on subnormal numbers would be slow
        down, across = (
            -(-size // (n * of))
            for size, n, of in zip(self._total[1:], DOT_BLOCKS, (DOT_FILTERS, DOT_ROWS), strict=True)
        )
        for group, groups, start, count, filled in rows.slices(X):
            lines = upstream[: groups * filters]
            where = start, count, seen.pitches, (1, 1, 1), self._origin
            threads.run(self._fill, len(lines), 2 * lines.nbytes, dY, group * filters, *where, lines)
            what = upstream, filters, filled, rows.of_group, self._offsets, count, self._lanes
            threads.run(self._dot, groups * down * across, 2 * filled.nbytes, *what, total[group : group + groups])
        return total


def _filler(dtype: np.dtype) -> Any:
    source = types.Array(numba.from_dtype(kernel_dtype(dtype)), 5, "A", readonly=True)
    rows = types.Array(numba.from_dtype(arithmetic(dtype)), 2, "C")
    i = types.int64
    return fill(threads.QUEUE, source, i, i, i, _TRIPLE, _TRIPLE, _TABLE, rows)
