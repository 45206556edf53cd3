"""The kernels of both batch norms: one scale, mean and variance for each channel, and sums over each channel.

    xh = (X - mean) r          r is the inverse standard deviation: given, or 1/sqrt(variance + epsilon)
    bias sum = sum of D        scale sum = sum of D xh
    dX = D scale r                                                  if the statistics are constants (DirectML)
    dX = scale r (D - bias sum/m - xh scale sum/m), m elements      if they are those of the batch

Without X the sums are those of D - mean and of its square: statistics of D.

There are kernels for planes, runs of elements of one channel, and for columns, runs of elements of different channels
(see runs). `variance` is the inverse standard deviation if `epsilon` is None.

Both sums may cancel. With a constant D only the rounding error of the mean remains. Sums over planes of
float32 are therefore in float64, at no cost in time. Sums over columns are not: they would take a tenth longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.cpu import threads
from gradkern.cpu.compile import AS_WRITTEN, INLINE, REORDERED, SUMMING, by_types, kernel
from gradkern.cpu.element_types import (
    arithmetic_type,
    destination,
    load,
    real,
    store,
    summand,
    summand_type,
    zeros,
)
from gradkern.cpu.runs import RUNS_TYPES, Runs, column_task, plane_task
from gradkern.cpu.sums import BLOCK, PARTIAL, SPAN, RowSums, flush
from gradkern.cpu.threads import QUEUE, take


@numba.njit(**INLINE)
def _inverse(variance: Any, channel: int, epsilon: Any) -> float:
    if epsilon is None:
        return load(variance, channel)
    return real(variance, 1) / math.sqrt(load(variance, channel) + real(variance, epsilon))


@numba.njit(**AS_WRITTEN)
def _gradient(d: float, x: float, gain: float, level: float, mu: float, slope: float) -> float:
    return gain * ((d - level) - (x - mu) * slope)


@by_types(**INLINE)
def _shared_factor(D: Any, dX: Any, r: Any) -> Any:
    """The factors of each summand and of their sum, one of them r. If sums of float32 are in float64, r multiplies the
    sum: without it nothing overflows there. Else r multiplies each summand.
    """

    def of_sum(D: Any, dX: Any, r: Any) -> Any:
        return 1.0, np.float64(r)

    def of_each(D: Any, dX: Any, r: Any) -> Any:
        return r, real(D, 1)

    return of_each if summand_type(D, dX) == arithmetic_type(D) else of_sum


@numba.njit(**SUMMING)
def add_planes(
    D: Any, X: Any, scale: Any, mean: Any, variance: Any, epsilon: Any, dX: Any, target: Any, scale_sums: Any,
    bias_sums: Any, scale_block: Any, bias_block: Any, channel_offsets: Any, reduced_offsets: Any, part: int,
    first_channel: int, last_channel: int, first: int, last: int, begin: int, end: int,
) -> None:  # fmt: skip
    """The sums of one task, and dX with constant statistics; each None if not requested.

    The blocks hold the sums of its channels, in separate memory: no other core writes to the same cache lines.
    """
    scale_block[:], bias_block[:] = 0, 0
    for index in range(first, last):
        for channel in range(first_channel, last_channel):
            offset = channel_offsets[channel] + reduced_offsets[index]
            r = real(D, 1)
            if variance is not None:
                r = _inverse(variance, channel, epsilon)
            inside, outside = _shared_factor(D, dX, r)
            mu = summand(D, dX, 0)
            if scale_sums is not None:
                mu = summand(D, dX, load(mean, channel))
            gain = real(D, 0)
            if dX is not None:
                gain = load(scale, channel) * r
            for start in range(begin, end, SPAN):
                scale_sum = summand(D, dX, 0)
                bias_sum = summand(D, dX, 0)
                for at in range(offset + start, offset + min(start + SPAN, end)):
                    d = load(D, at)
                    term = summand(D, dX, d)
                    if scale_sums is not None:
                        if X is None:
                            term -= mu
                            scale_sum += term * term
                        else:
                            scale_sum += term * ((summand(D, dX, load(X, at)) - mu) * inside)
                    if bias_sums is not None:
                        bias_sum += term
                    if dX is not None:
                        store(target, at, d * gain)
                scale_block[channel - first_channel] += scale_sum * outside
                bias_block[channel - first_channel] += bias_sum
    row = part * channel_offsets.size + first_channel
    for channel in range(last_channel - first_channel):
        if scale_sums is not None:
            scale_sums[row + channel] = scale_block[channel]
        if bias_sums is not None:
            bias_sums[row + channel] = bias_block[channel]


@kernel
def _reduce_planes(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, variance: Any, epsilon: Any, dX: Any, scale_sums: Any,
    bias_sums: Any, channel_offsets: Any, reduced_offsets: Any, length: int, channels_per_task: int,
    reduced_per_task: int, run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """The sums, and dX with constant statistics; each None if not requested. repeats is 1."""
    target = destination(dX, D, X)
    scale_block, bias_block = np.zeros(channels_per_task), np.zeros(channels_per_task)
    task = take(queue)
    while task >= 0:
        part, first_channel, last_channel, first, last, begin, end = plane_task(
            task, channel_offsets.size, reduced_offsets.size, length, channels_per_task, reduced_per_task, run_per_task
        )
        add_planes(
            D, X, scale, mean, variance, epsilon, dX, target, scale_sums, bias_sums, scale_block, bias_block,
            channel_offsets, reduced_offsets, part, first_channel, last_channel, first, last, begin, end,
        )  # fmt: skip
        task = take(queue)


@kernel
def _reduce_columns(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, variance: Any, epsilon: Any, dX: Any, scale_sums: Any,
    bias_sums: Any, channel_offsets: Any, reduced_offsets: Any, length: int, channels_per_task: int,
    reduced_per_task: int, run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """The same for columns. A run is `repeats` rows of them; the last run may be shorter."""
    target = destination(dX, D, X)
    channels = channel_offsets.size
    task = take(queue)
    while task >= 0:
        part, channel_index, first, last, begin, width = column_task(
            task, channels, reduced_offsets.size, length, reduced_per_task, run_per_task
        )
        partial = (part * channels + channel_index) * length + begin
        if scale_sums is not None:
            scale_sums[partial : partial + width] = 0
        scale_block = zeros(D, 0 if scale_sums is None else width)
        if bias_sums is not None:
            bias_sums[partial : partial + width] = 0
        bias_block = zeros(D, 0 if bias_sums is None else width)
        mu, r, gain = zeros(D, width), zeros(D, width), zeros(D, width)
        columns = width // repeats
        for column in range(width):
            channel = channel_index * length + begin + column % columns
            if variance is not None:
                r[column] = _inverse(variance, channel, epsilon)
            if scale_sums is not None:
                mu[column] = load(mean, channel)
            if dX is not None:
                gain[column] = load(scale, channel) * r[column]
        for index in range(first, last):
            offset = channel_offsets[channel_index] + reduced_offsets[index] + begin
            for column in range(min(width, D.size - offset)):
                d = load(D, offset + column)
                if scale_sums is not None:
                    if X is None:
                        d -= load(mu, column)
                        store(scale_block, column, load(scale_block, column) + d * d)
                    else:
                        xh = (load(X, offset + column) - load(mu, column)) * load(r, column)
                        store(scale_block, column, load(scale_block, column) + d * xh)
                if bias_sums is not None:
                    store(bias_block, column, load(bias_block, column) + d)
                if dX is not None:
                    store(target, offset + column, d * load(gain, column))
            if (index - first) % BLOCK == BLOCK - 1 or index == last - 1:
                if scale_sums is not None:
                    flush(scale_block, scale_sums, partial)
                if bias_sums is not None:
                    flush(bias_block, bias_sums, partial)
        task = take(queue)


@numba.njit(**REORDERED)
def _apply_to_some(
    D: Any, X: Any, scale: Any, mean: Any, inv_std: Any, scale_sum: Any, bias_sum: Any, residual: Any, target: Any,
    channel_offsets: Any, reduced_offsets: Any, count: Any, first_channel: int, last_channel: int,
    first: int, last: int, begin: int, end: int,
) -> None:  # fmt: skip
    """dX of one task, with the statistics of the batch: scale r (D - bias_sum/m - (X - mean) r scale_sum/m). Without
    `count` the sums are a level and a slope that a group's channels have in common, and dX is
    r (scale D - level - (X - mean) slope), plus the residual.
    """
    for index in range(first, last):
        for channel in range(first_channel, last_channel):
            offset = channel_offsets[channel] + reduced_offsets[index]
            mu = load(mean, channel)
            r = load(inv_std, channel)
            gain = load(scale, channel) * r
            if count is None:
                factor, level, slope = load(scale, channel), load(bias_sum, channel), load(scale_sum, channel)
                for at in range(offset + begin, offset + end):
                    value = _gradient(factor * load(D, at), load(X, at), r, level, mu, slope)
                    if residual is not None:
                        value += load(residual, at)
                    store(target, at, value)
            else:
                level = real(D, bias_sum[channel] / count)
                slope = real(D, r * (scale_sum[channel] / count))
                for at in range(offset + begin, offset + end):
                    store(target, at, _gradient(load(D, at), load(X, at), gain, level, mu, slope))


@kernel
def _apply_to_planes(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, inv_std: Any, scale_sum: Any, bias_sum: Any, residual: Any,
    dX: Any, channel_offsets: Any, reduced_offsets: Any, length: int, channels_per_task: int, reduced_per_task: int,
    run_per_task: int, repeats: int, count: Any, summing: Any,
) -> None:  # fmt: skip
    """dX, with the statistics of the batch, plus the residual unless that is None. Unless `summing` is None, tasks have
    whole channels, and write their sums first: dX is computed while the cache holds the data.
    """
    target = destination(dX, D, X)
    blocks = 0 if summing is None else channels_per_task
    scale_block, bias_block = np.zeros(blocks), np.zeros(blocks)
    task = take(queue)
    while task >= 0:
        _, first_channel, last_channel, first, last, begin, end = plane_task(
            task, channel_offsets.size, reduced_offsets.size, length, channels_per_task, reduced_per_task, run_per_task
        )
        if summing is not None:
            add_planes(
                D, X, scale, mean, inv_std, None, None, None, scale_sum, bias_sum, scale_block, bias_block,
                channel_offsets, reduced_offsets, 0, first_channel, last_channel, first, last, begin, end,
            )  # fmt: skip
        _apply_to_some(
            D, X, scale, mean, inv_std, scale_sum, bias_sum, residual, target, channel_offsets, reduced_offsets, count,
            first_channel, last_channel, first, last, begin, end,
        )  # fmt: skip
        task = take(queue)


@kernel
def _apply_to_columns(
    queue: Any, D: Any, X: Any, scale: Any, mean: Any, inv_std: Any, scale_sum: Any, bias_sum: Any, residual: Any,
    dX: Any, channel_offsets: Any, reduced_offsets: Any, length: int, channels_per_task: int, reduced_per_task: int,
    run_per_task: int, repeats: int, count: Any, summing: Any,
) -> None:  # fmt: skip
    """The same for columns; `summing` is None."""
    target = destination(dX, D, X)
    channels = channel_offsets.size
    task = take(queue)
    while task >= 0:
        _, channel_index, first, last, begin, width = column_task(
            task, channels, reduced_offsets.size, length, reduced_per_task, run_per_task
        )
        columns = width // repeats
        mu, gain, level, slope = zeros(D, width), zeros(D, width), zeros(D, width), zeros(D, width)
        factor = zeros(D, width)
        for column in range(width):
            channel = channel_index * length + begin + column % columns
            mu[column] = load(mean, channel)
            r = load(inv_std, channel)
            if count is None:
                factor[column], gain[column] = load(scale, channel), r
                level[column], slope[column] = load(bias_sum, channel), load(scale_sum, channel)
            else:
                gain[column] = load(scale, channel) * r
                level[column] = bias_sum[channel] / count
                slope[column] = r * (scale_sum[channel] / count)
        for index in range(first, last):
            offset = channel_offsets[channel_index] + reduced_offsets[index] + begin
            for column in range(min(width, D.size - offset)):
                d = load(D, offset + column)
                if count is None:
                    d *= load(factor, column)
                x = load(X, offset + column) - load(mu, column)
                value = load(gain, column) * ((d - load(level, column)) - x * load(slope, column))
                if residual is not None:
                    value += load(residual, offset + column)
                store(target, offset + column, value)
        task = take(queue)


class Reduce:
    """One pass over D and X: the requested sums, and dX if the statistics are constants.

    inputs holds Numba's types of D, X, scale, mean and variance, dX is that of dX or none; totals the element types of
    the sums of scale and bias, None for one that is not requested. Inputs that the requested results do not depend
    on are not part of the kernel: it then serves all their types.
    """

    def __init__(
        self,
        runs: Runs,
        inputs: Sequence[Any],
        dX: Any,
        totals: Sequence[np.dtype | None],
        epsilon: float | None = None,
    ) -> None:
        self._runs = runs
        self._tasks = math.prod(runs.parts)
        self._epsilon = epsilon
        self._sums = RowSums(runs.rows, runs.channels, totals)
        of_scale, of_dX = totals[0] is not None, dX != types.none
        self._needed = (True, of_scale or of_dX, of_dX, of_scale, of_scale or of_dX)
        self._compiled = (_reduce_columns if runs.columns else _reduce_planes)(
            QUEUE,
            *(each if needed else types.none for each, needed in zip(inputs, self._needed, strict=True)),
            types.none if epsilon is None else types.float64,
            dX,
            *self._sums.types,
            *RUNS_TYPES,
        )
        self.nbytes = self._sums.nbytes

    def __call__(self, arrays: Sequence[Any], dX: Any, totals: Sequence[np.ndarray | None]) -> None:
        """arrays: D, X, scale, mean, variance."""
        partials = self._sums.partials()
        inputs = (each if needed else None for each, needed in zip(arrays, self._needed, strict=True))
        arguments = (*inputs, self._epsilon, dX, *partials, *self._runs.arguments)
        threads.run(self._compiled, self._tasks, arrays[0].nbytes * 3, *arguments)
        self._sums.add(partials, totals)


class Apply:
    """The second pass, with the statistics of the batch: dX from D, X and both sums in float64.

    summing: the sums are written, not read, in the same pass; of runs of whole channels.
    numbers: Numba's type of a level and a slope in place of the sums, see `_apply_to_some`; residual: that of an array
    that is added, or none.
    """

    def __init__(
        self,
        runs: Runs,
        inputs: Sequence[Any],
        dX: Any,
        summing: bool = False,
        numbers: Any = None,
        residual: Any = types.none,
    ) -> None:
        self._runs = runs
        self._tasks = math.prod(runs.parts)
        self._summing = True if summing else None
        self._compiled = (_apply_to_columns if runs.columns else _apply_to_planes)(
            QUEUE, *inputs, *(numbers or PARTIAL,) * 2, residual, dX, *RUNS_TYPES,
            types.none if numbers else types.float64, types.boolean if summing else types.none,
        )  # fmt: skip

    def __call__(
        self,
        arrays: Sequence[np.ndarray],
        totals: Sequence[np.ndarray | None],
        dX: Any,
        count: float | None,
        residual: np.ndarray | None = None,
    ) -> None:
        """arrays: D, X, scale, mean, inverse standard deviation; totals: of scale and bias, or slope and level; count:
        elements of each channel the sums are over.
        """
        count = None if count is None else float(count)
        arguments = (*arrays, *totals, residual, dX, *self._runs.arguments, count, self._summing)
        threads.run(self._compiled, self._tasks, arrays[0].nbytes * 3, *arguments)
