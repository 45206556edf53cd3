"""ConvGrad by matrix products, a slice of the columns at a time.

    dW[m, (c, k)] = sum over p of  dY[m, p] * columns of X[(c, k), p]
    dX[(h, c), p] = sum over (m, t) of  W[m, c, taps[h, t]] * columns of dY[(m, t), p]          for each part of dX

A slice is a range of positions, over all images, and of groups. Its columns stay in the cache between the gather and
the product, so the column matrix never goes to memory, and scratch does not grow with the problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call, Refusal
from gradkern.cpu import threads
from gradkern.cpu.element_types import arithmetic, kernel_dtype
from gradkern.ops.conv.cpu.im2col import gather, pack, scatter
from gradkern.ops.conv.geometry import DataPart, Geometry, Window
from gradkern.strides import is_dense

__all__ = ["GemmLaunch", "Slices", "gatherer", "products", "scatterer"]

# A slice's columns and result: large enough for OpenBLAS to reach its speed, small enough for the last-level cache.
SLICE_BYTES = 4 << 20
SHORTEST_SLICE = 256

_TRIPLE = types.UniTuple(types.int64, 3)
_TABLE = types.Array(types.int64, 2, "C")
_TABLES = types.UniTuple(_TABLE, 3)
_TAPS = types.Array(types.int64, 3, "C")


class GemmLaunch:
    """Computes the wanted ones of dX and dW; scratch is what it allocates at most at one time, in bytes."""

    def __init__(self, call: Call, geometry: Geometry, limit: int, data: bool = True) -> None:
        dtype = call.inputs["X"].dtype
        parts = geometry.data_parts() if data and "dX" in call.outputs else []
        self._data = [_DataGradient(dtype, geometry, part, limit) for part in parts]
        self._weights = _WeightGradient(call, geometry, limit) if "dW" in call.outputs else None
        steps = self._data if self._weights is None else [*self._data, self._weights]
        self.scratch = max((step.scratch for step in steps), default=0)

    def __call__(
        self, dY: np.ndarray, X: np.ndarray, W: np.ndarray, dX: np.ndarray | None, dW: np.ndarray | None
    ) -> None:
        if self._weights is not None and dW is not None:
            self._weights(dY, X, dW)
        if dX is not None:
            for part in self._data:
                part(dY, W, dX)


class Slices:
    """How positions and groups are cut, for `rows` rows of scratch per group and position."""

    def __init__(self, rows: int, positions: int, group: int, item: int, available: int) -> None:
        per_position = max(rows, 1) * item
        if available < per_position and positions:
            short = per_position - available
            raise Refusal(f"needs at least {short} bytes of scratch more than the policy's workspace_limit allows")
        longest = min(max(SHORTEST_SLICE, SLICE_BYTES // per_position), max(available, 0) // per_position, positions)
        self.length = -(-positions // -(-positions // longest)) if positions else 1
        slices = min(max(available, 0), SLICE_BYTES) // (per_position * self.length)
        self.groups = max(1, min(group, slices))
        self.elements = self.groups * self.length if positions else 0
        self.starts = range(0, positions, self.length)
        self.ranges = [(g, min(self.groups, group - g)) for g in range(0, group, self.groups)]

    @property
    def positions(self) -> Iterator[tuple[int, int]]:
        """The first position and the length of each slice. Not a list: there may be more of them than memory."""
        return ((start, min(self.length, self.starts.stop - start)) for start in self.starts)


class _WeightGradient:
    """dW += dY * columns(X)^T over the slices of Y's positions; the sum is kept in the arithmetic type."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        tensor, dtype = call.outputs["dW"], call.inputs["X"].dtype
        self._dtype = arithmetic(dtype)
        self._seen, self._upstream = geometry.weight_window(), geometry.upstream_window()
        self._group, self._taps = geometry.group, geometry.taps
        self._filters, self._channels = geometry.filters, geometry.channels
        self._rows = geometry.channels * geometry.taps
        self._in_place = tensor.dtype == self._dtype and is_dense(tensor)
        item, total = self._dtype.itemsize, geometry.group * geometry.filters * self._rows
        sums = (1 if self._in_place else 2) * total * item  # dW in the arithmetic type, and one slice's share of it
        positions = geometry.images * self._seen.positions
        self._slices = Slices(self._rows + self._filters, positions, geometry.group, item, limit - sums)
        self.scratch = sums + self._slices.elements * (self._rows + self._filters) * item
        self._gather = gatherer(dtype)

    def __call__(self, dY: np.ndarray, X: np.ndarray, dW: np.ndarray) -> None:
        filters, rows, slices = self._filters, self._rows, self._slices
        total = dW if self._in_place else np.empty(dW.shape, self._dtype)
        total = total.reshape(self._group, filters, rows)
        share = np.empty((slices.groups, filters, rows), self._dtype) if len(slices.starts) > 1 else None
        memory = np.empty(slices.elements * (rows + filters), self._dtype)
        for group, groups in slices.ranges:
            part = total[group : group + groups]
            if not slices.starts:
                part[...] = 0
            for start, length in slices.positions:
                split = groups * rows * length
                columns = memory[:split].reshape(groups * self._channels, self._taps, length)
                upstream = memory[split : split + groups * filters * length].reshape(groups * filters, 1, length)
                self._gather(X, group * self._channels, start, self._seen, columns)
                self._gather(dY, group * filters, start, self._upstream, upstream)
                left = upstream.reshape(groups, filters, length)
                right = columns.reshape(groups, rows, length).swapaxes(1, 2)
                if start == 0:
                    np.matmul(left, right, out=part)
                else:
                    part += np.matmul(left, right, out=share[:groups])  # type: ignore[index]
        if not self._in_place:
            dW[...] = total.reshape(dW.shape)


class _DataGradient:
    """One part of dX: W, with the part's taps in front, times the columns of dY. Each element is written once."""

    def __init__(self, dtype: np.dtype, geometry: Geometry, part: DataPart, limit: int) -> None:
        self._dtype = arithmetic(dtype)
        self._part, self._strides = part, geometry.strides
        self._group, self._channels, self._filters = geometry.group, geometry.channels, geometry.filters
        self._phases, self._taps, _ = part.taps.shape
        self._rows, self._results = geometry.filters * self._taps, self._phases * geometry.channels
        item, positions = self._dtype.itemsize, geometry.images * part.window.positions
        weights = geometry.group * self._results * self._rows * item
        self._slices = Slices(self._rows + self._results, positions, geometry.group, item, limit - weights)
        self.scratch = weights + self._slices.elements * (self._rows + self._results) * item
        self._gather = gatherer(dtype)
        seen = numba.from_dtype(kernel_dtype(dtype))
        used = numba.from_dtype(self._dtype)
        source = types.Array(seen, 5, "A", readonly=True)
        self._pack = pack(threads.QUEUE, source, types.int64, _TAPS, types.Array(used, 3, "C"))
        self._scatter = scatterer(dtype)

    def __call__(self, dY: np.ndarray, W: np.ndarray, dX: np.ndarray) -> None:
        rows, results, window = self._rows, self._results, self._part.window
        weights = np.empty((self._group, results, rows), self._dtype)
        packed = weights.reshape(self._group * results, self._filters, self._taps)
        threads.run(self._pack, self._group * results, 2 * weights.nbytes, W, self._channels, self._part.taps, packed)
        for group, start, result in products(self._slices, weights, dY, window, self._taps, self._gather):
            to = self._strides, self._part.firsts, dX
            self._scatter(result, group, self._channels, start, window.grid, *to)


def products(
    slices: Slices, left: np.ndarray, source: np.ndarray, window: Window, taps: int, gather: Any
) -> Iterator[tuple[int, int, np.ndarray]]:
    """`left`, a matrix for each group, times the columns of `source`, slice after slice in the same memory: the first
    group of each, where its positions start, and its result.
    """
    group_count, results, rows = left.shape
    channels = source.shape[1] // group_count
    memory = np.empty(slices.elements * (rows + results), left.dtype)
    for group, groups in slices.ranges:
        for start, length in slices.positions:
            split = groups * rows * length
            columns = memory[:split].reshape(groups * channels, taps, length)
            result = memory[split : split + groups * results * length].reshape(groups, results, length)
            gather(source, group * channels, start, window, columns)
            np.matmul(left[group : group + groups], columns.reshape(groups, rows, length), out=result)
            yield group, start, result


def gatherer(dtype: np.dtype) -> Any:
    """gather for sources of this type, with a window for its table of integers."""
    source = types.Array(numba.from_dtype(kernel_dtype(dtype)), 5, "A", readonly=True)
    columns = types.Array(numba.from_dtype(arithmetic(dtype)), 3, "C")
    compiled = gather(
        threads.QUEUE, source, types.int64, types.int64, _TRIPLE, _TRIPLE, _TABLE, _TABLE, _TABLE, columns
    )

    def run(source: np.ndarray, first_row: int, start: int, window: Window, columns: np.ndarray) -> None:
        what = (source, first_row, start, window.grid, window.steps, *window.offsets, columns)
        threads.run(compiled, len(columns), 2 * columns.nbytes, *what)

    return run


def scatterer(dtype: np.dtype) -> Any:
    """scatter for targets of this type."""
    target = types.Array(numba.from_dtype(kernel_dtype(dtype)), 5, "A")
    matrix, integer = types.Array(numba.from_dtype(arithmetic(dtype)), 3, "C"), types.int64
    compiled = scatter(threads.QUEUE, matrix, integer, integer, integer, _TRIPLE, _TRIPLE, _TABLE, target)

    def run(result: np.ndarray, *where: Any) -> None:
        threads.run(compiled, result.shape[0] * result.shape[1], 2 * result.nbytes, result, *where)

    return run
