"""Both batch norms: one scale, mean and spread for each channel, sums over all that a channel has.

    xh = (X - mean) r          r is the inverse standard deviation: spread, or 1/sqrt(spread + epsilon)
    bias sum = sum of D        scale sum = sum of D xh
    dX = D scale r                                                  where the statistics are constants (DirectML)
    dX = scale r (D - bias sum/m - xh scale sum/m), m elements      where they are those of the batch

Each axis is kept (it tells channels apart) or reduced. In memory, axes of one kind beside each other are one axis. The
last is a run of elements; a run's place is the sum of one term for the kept axes before it and one for the reduced axes
before it. A reduced run is a plane, all of one channel; the elements of a kept run are columns, each its own channel.
That serves every layout: N C H W, channels-last, N x C, and DirectML's choice of any axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Tensor
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import destination, load, real, store, zeros
from gradkern.cpu.sums import BLOCK, PARTIAL, SPAN, RowSums, flush, fold, rows_per_task
from gradkern.cpu.threads import QUEUE, take
from gradkern.strides import is_dense, memory_order, merged

_PLACES = types.Array(types.int64, 1, "C")
__all__ = ["Apply", "Reduce", "Runs"]

_PIECE = 8 * SPAN  # elements of a plane, or of the planes side by side, that one task takes at least
_WIDTH = 4096  # columns one task takes at most


@dataclass(frozen=True, slots=True)
class Runs:
    """Where the runs are, and how they are shared out.

    kept, reduced   places of the first elements, by index over the kept and the reduced axes before the run
    length          elements of a run
    columns         whether the run is kept
    folded          rows of columns taken as one run
    channels        how many there are
    count           elements of each channel
    along_kept, along_reduced, along_run    how much of each a task takes
    """

    kept: np.ndarray
    reduced: np.ndarray
    length: int
    columns: bool
    folded: int
    channels: int
    count: int
    along_kept: int
    along_reduced: int
    along_run: int

    @staticmethod
    def of(sizes: Sequence[int], is_kept: Sequence[bool]) -> Runs:
        """The runs of a dense array, its axes in memory order."""
        axes = merged(sizes, is_kept)
        channels = math.prod(size for size, kept in axes if kept)
        count = math.prod(size for size, kept in axes if not kept)
        length, columns = axes.pop() if axes else (1, False)
        stride, places = length, {True: np.zeros(1, np.int64), False: np.zeros(1, np.int64)}
        for size, kept in reversed(axes):
            places[kept] = np.add.outer(np.arange(size) * stride, places[kept]).reshape(-1)
            stride *= size
        kept, reduced = places[True], places[False]
        if not columns:
            along_kept = max(1, SPAN // max(1, length))
            along_reduced = max(-(-reduced.size // 64), -(-_PIECE // max(1, along_kept * length)))
            return Runs(kept, reduced, length, False, 1, channels, count, along_kept, along_reduced, _PIECE)
        folded = fold(reduced.size, length) if kept.size == 1 else 1
        reduced, length = reduced[::folded].copy(), length * folded
        return Runs(kept, reduced, length, True, folded, channels, count, 1, rows_per_task(reduced.size), _WIDTH)

    @staticmethod
    def lying(tensor: Tensor, is_kept: Sequence[bool]) -> tuple[tuple[int, ...] | None, Runs]:
        """The memory order in which the kernels take a tensor, and its runs in that order."""
        order = _memory_order(tensor, is_kept)
        axes = range(len(tensor.shape)) if order is None else order
        return order, Runs.of([tensor.shape[axis] for axis in axes], [is_kept[axis] for axis in axes])

    @property
    def parts(self) -> tuple[int, int, int]:
        """Into how many tasks the kept axes, the reduced axes and the run are cut."""
        cut = (self.kept.size, self.along_kept), (self.reduced.size, self.along_reduced), (self.length, self.along_run)
        kept, reduced, run = (-(-size // step) for size, step in cut)
        return kept, reduced, run

    @property
    def rows(self) -> int:
        """How many rows of partial sums, each of one sum per channel, the tasks write."""
        _, reduced, run = self.parts
        return reduced * (self.folded if self.columns else run)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the kernels are told."""
        steps = (self.along_kept, self.along_reduced, self.along_run)
        return (self.kept, self.reduced, self.length, *steps, self.folded)


_RUNS = (_PLACES, _PLACES, *(types.int64,) * 5)


def _memory_order(tensor: Tensor, is_kept: Sequence[bool]) -> tuple[int, ...] | None:
    """The axes as they lie in memory, slowest first; None, C order, for arrays that have to be copied anyway, and for
    those whose channels would come in another order than that of the parameters.
    """
    order = memory_order(tensor)
    kept = [axis for axis in order if is_kept[axis] and tensor.shape[axis] != 1]
    return order if is_dense(tensor, order) and kept == sorted(kept) else None


@numba.njit(**INLINE)
def _inverse(spread: Any, channel: int, epsilon: Any) -> float:
    if epsilon is None:
        return load(spread, channel)
    return real(spread, 1) / math.sqrt(load(spread, channel) + real(spread, epsilon))


@kernel
def _reduce_planes(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, spread: Any, epsilon: Any, dX: Any, scale_sums: Any,
    bias_sums: Any, kept: Any, reduced: Any, length: int, along_kept: int, along_reduced: int, along_run: int,
    repeats: int,
) -> None:  # fmt: skip
    """The sums, and dX with constant statistics; each None if not wanted. repeats is 1."""
    channels = kept.size
    kept_parts = (channels + along_kept - 1) // along_kept
    target = destination(dX, D, X)
    run_parts = (length + along_run - 1) // along_run
    task = take(queue)
    while task >= 0:
        part = task // kept_parts  # of the reduced axes and the run: one row of partial sums
        first_kept = task % kept_parts * along_kept
        last_kept = min(first_kept + along_kept, channels)
        begin = part % run_parts * along_run
        end = min(begin + along_run, length)
        first_reduced = part // run_parts * along_reduced
        for channel in range(first_kept, last_kept):
            if scale_sums is not None:
                scale_sums[part * channels + channel] = 0
            if bias_sums is not None:
                bias_sums[part * channels + channel] = 0
        for index in range(first_reduced, min(first_reduced + along_reduced, reduced.size)):
            for channel in range(first_kept, last_kept):
                place = kept[channel] + reduced[index]
                r = _inverse(spread, channel, epsilon)
                mu = real(D, 0)
                if scale_sums is not None:
                    mu = load(mean, channel)
                gain = real(D, 0)
                if dX is not None:
                    gain = load(scale, channel) * r
                for start in range(begin, end, SPAN):
                    scale_sum = real(D, 0)
                    bias_sum = real(D, 0)
                    for at in range(place + start, place + min(start + SPAN, end)):
                        d = load(D, at)
                        if scale_sums is not None:
                            scale_sum += d * ((load(X, at) - mu) * r)
                        if bias_sums is not None:
                            bias_sum += d
                        if dX is not None:
                            store(target, at, d * gain)
                    if scale_sums is not None:
                        scale_sums[part * channels + channel] += scale_sum
                    if bias_sums is not None:
                        bias_sums[part * channels + channel] += bias_sum
        task = take(queue)


@kernel
def _reduce_columns(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, spread: Any, epsilon: Any, dX: Any, scale_sums: Any,
    bias_sums: Any, kept: Any, reduced: Any, length: int, along_kept: int, along_reduced: int, along_run: int,
    repeats: int,
) -> None:  # fmt: skip
    """The same for columns; a run is `repeats` rows of them, the last run perhaps less."""
    target = destination(dX, D, X)
    run_parts = (length + along_run - 1) // along_run
    kept_parts = kept.size * run_parts
    task = take(queue)
    while task >= 0:
        part = task // kept_parts
        index_kept = task % kept_parts // run_parts
        begin = task % run_parts * along_run
        width = min(along_run, length - begin)
        partial = (part * kept.size + index_kept) * length + begin
        if scale_sums is not None:
            scale_sums[partial : partial + width] = 0
        scale_block = zeros(D, 0 if scale_sums is None else width)
        if bias_sums is not None:
            bias_sums[partial : partial + width] = 0
        bias_block = zeros(D, 0 if bias_sums is None else width)
        mu, r, gain = zeros(D, width), zeros(D, width), zeros(D, width)
        columns = width // repeats
        for column in range(width):
            channel = index_kept * length + begin + column % columns
            r[column] = _inverse(spread, channel, epsilon)
            if scale_sums is not None:
                mu[column] = load(mean, channel)
            if dX is not None:
                gain[column] = load(scale, channel) * r[column]
        first = part * along_reduced
        last = min(first + along_reduced, reduced.size)
        for index in range(first, last):
            place = kept[index_kept] + reduced[index] + begin
            for column in range(min(width, D.size - place)):
                d = load(D, place + column)
                if scale_sums is not None:
                    xh = (load(X, place + column) - load(mu, column)) * load(r, column)
                    store(scale_block, column, load(scale_block, column) + d * xh)
                if bias_sums is not None:
                    store(bias_block, column, load(bias_block, column) + d)
                if dX is not None:
                    store(target, place + column, d * load(gain, column))
            if (index - first) % BLOCK == BLOCK - 1 or index == last - 1:
                if scale_sums is not None:
                    flush(scale_block, scale_sums, partial)
                if bias_sums is not None:
                    flush(bias_block, bias_sums, partial)
        task = take(queue)


@kernel
def _apply_to_planes(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, inv_std: Any, scale_sum: Any, bias_sum: Any, dX: Any,
    kept: Any, reduced: Any, length: int, along_kept: int, along_reduced: int, along_run: int,
    repeats: int, count: int,
) -> None:  # fmt: skip
    """dX where the statistics are those of the batch."""
    kept_parts = (kept.size + along_kept - 1) // along_kept
    target = destination(dX, D, X)
    run_parts = (length + along_run - 1) // along_run
    task = take(queue)
    while task >= 0:
        part = task // kept_parts
        first_kept = task % kept_parts * along_kept
        begin = part % run_parts * along_run
        end = min(begin + along_run, length)
        first_reduced = part // run_parts * along_reduced
        for index in range(first_reduced, min(first_reduced + along_reduced, reduced.size)):
            for channel in range(first_kept, min(first_kept + along_kept, kept.size)):
                place = kept[channel] + reduced[index]
                # dX = scale r (D - bias_sum/m - (X - mean) r scale_sum/m)
                mu = load(mean, channel)
                r = load(inv_std, channel)
                gain = load(scale, channel) * r
                level = real(D, bias_sum[channel] / count)
                slope = real(D, r * (scale_sum[channel] / count))
                for at in range(place + begin, place + end):
                    store(target, at, gain * (load(D, at) - level - (load(X, at) - mu) * slope))
        task = take(queue)


@kernel
def _apply_to_columns(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, inv_std: Any, scale_sum: Any, bias_sum: Any, dX: Any,
    kept: Any, reduced: Any, length: int, along_kept: int, along_reduced: int, along_run: int,
    repeats: int, count: int,
) -> None:  # fmt: skip
    """The same for columns."""
    target = destination(dX, D, X)
    run_parts = (length + along_run - 1) // along_run
    kept_parts = kept.size * run_parts
    task = take(queue)
    while task >= 0:
        part = task // kept_parts
        index_kept = task % kept_parts // run_parts
        begin = task % run_parts * along_run
        width = min(along_run, length - begin)
        columns = width // repeats
        mu, gain, level, slope = zeros(D, width), zeros(D, width), zeros(D, width), zeros(D, width)
        for column in range(width):
            channel = index_kept * length + begin + column % columns
            mu[column] = load(mean, channel)
            r = load(inv_std, channel)
            gain[column] = load(scale, channel) * r
            level[column] = bias_sum[channel] / count
            slope[column] = r * (scale_sum[channel] / count)
        first = part * along_reduced
        for index in range(first, min(first + along_reduced, reduced.size)):
            place = kept[index_kept] + reduced[index] + begin
            for column in range(min(width, D.size - place)):
                d = load(D, place + column) - load(level, column)
                x = load(X, place + column) - load(mu, column)
                store(target, place + column, load(gain, column) * (d - x * load(slope, column)))
        task = take(queue)


class Reduce:
    """One pass over D and X: the sums that are wanted, and dX where the statistics are constants.

    data is Numba's type of D and X, parameters of scale (none, if dX is not wanted), mean and spread, dX of dX or none;
    totals the element types of the sums of scale and bias, None for one that is not wanted.
    """

    def __init__(
        self,
        runs: Runs,
        data: Any,
        parameters: Sequence[Any],
        dX: Any,
        totals: Sequence[np.dtype | None],
        epsilon: float | None = None,
    ) -> None:
        self._runs = runs
        self._tasks = math.prod(runs.parts)
        self._epsilon = epsilon
        self._sums = RowSums(runs.rows, runs.channels, totals)
        self._compiled = (_reduce_columns if runs.columns else _reduce_planes)(
            QUEUE,
            data,
            data,
            *parameters,
            types.none if epsilon is None else types.float64,
            dX,
            *self._sums.types,
            *_RUNS,
        )
        self.nbytes = self._sums.nbytes

    def __call__(self, arrays: Sequence[np.ndarray], dX: Any, totals: Sequence[np.ndarray | None]) -> None:
        """arrays: D, X, scale, mean, spread."""
        partials = self._sums.partials()
        arguments = (*arrays, self._epsilon, dX, *partials, *self._runs.arguments)
        threads.run(self._compiled, self._tasks, arrays[0].nbytes * 3, *arguments)
        self._sums.add(partials, totals)


class Apply:
    """The second pass, where the statistics are those of the batch: dX from D, X and both sums, which are float64.

    count is how many elements of each channel the sums are over.
    """

    def __init__(self, runs: Runs, data: Any, parameters: Sequence[Any], dX: Any, count: int) -> None:
        self._runs = runs
        self._count = count
        self._tasks = math.prod(runs.parts)
        self._compiled = (_apply_to_columns if runs.columns else _apply_to_planes)(
            QUEUE, data, data, *parameters, PARTIAL, PARTIAL, dX, *_RUNS, types.int64
        )

    def __call__(self, arrays: Sequence[np.ndarray], totals: Sequence[np.ndarray | None], dX: Any) -> None:
        """arrays: D, X, scale, mean, inverse standard deviation."""
        arguments = (*arrays, *totals, dX, *self._runs.arguments, self._count)
        threads.run(self._compiled, self._tasks, arrays[0].nbytes * 3, *arguments)
