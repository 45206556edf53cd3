"""Mean and variance of each channel of a batch, in two passes.

The first finds the mean. The second adds up deviations from it and their squares, and corrects the rounding of the
first (T. F. Chan, G. H. Golub and R. J. LeVeque, Algorithms for computing the sample variance, 1983):

    d = X - shift,  mean = shift + sum of d/m,  variance = sum of d^2/m - (sum of d/m)^2
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.cpu import threads
from gradkern.cpu.compile import REORDERED, kernel
from gradkern.cpu.element_types import arithmetic, array_type, load, real, store, summand, zeros
from gradkern.cpu.runs import RUNS_TYPES, Runs, column_task, plane_task
from gradkern.cpu.sums import BLOCK, PARTIAL, SPAN, RowSums, flush
from gradkern.cpu.threads import QUEUE, take

__all__ = ["Statistics"]

_FLOAT64 = np.dtype(np.float64)


@numba.njit(**REORDERED)
def _add_planes(
    X: Any, shift: Any, sums: Any, squares: Any, block: Any, square_block: Any, channel_offsets: Any,
    reduced_offsets: Any, part: int, first_channel: int, last_channel: int, first: int, last: int, begin: int, end: int,
) -> None:  # fmt: skip
    """The sums of one task. squares is None in the first pass.

    The blocks hold the sums of its channels, in separate memory: no other core writes to the same cache lines.
    """
    block[:], square_block[:] = 0, 0
    for index in range(first, last):
        for channel in range(first_channel, last_channel):
            offset = channel_offsets[channel] + reduced_offsets[index]
            from_ = summand(X, None, load(shift, channel))
            for start in range(begin, end, SPAN):
                total, square = summand(X, None, 0), summand(X, None, 0)
                for at in range(offset + start, offset + min(start + SPAN, end)):
                    d = summand(X, None, load(X, at)) - from_
                    total += d
                    if squares is not None:
                        square += d * d
                block[channel - first_channel] += total
                square_block[channel - first_channel] += square
    row = part * channel_offsets.size + first_channel
    for channel in range(last_channel - first_channel):
        sums[row + channel] = block[channel]
        if squares is not None:
            squares[row + channel] = square_block[channel]


@kernel
def _planes(
    queue: Any, X: Any, shift: Any, sums: Any, squares: Any, channel_offsets: Any, reduced_offsets: Any, length: int,
    channels_per_task: int, reduced_per_task: int, run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """For runs of elements of one channel; see runs. squares is None in the first pass."""
    block, square_block = np.zeros(channels_per_task), np.zeros(channels_per_task)
    task = take(queue)
    while task >= 0:
        part, first_channel, last_channel, first, last, begin, end = plane_task(
            task, channel_offsets.size, reduced_offsets.size, length, channels_per_task, reduced_per_task, run_per_task
        )
        _add_planes(
            X, shift, sums, squares, block, square_block, channel_offsets, reduced_offsets, part,
            first_channel, last_channel, first, last, begin, end,
        )  # fmt: skip
        task = take(queue)


@kernel
def _whole_channels(
    queue: Any, X: Any, shift: Any, sums: Any, squares: Any, channel_offsets: Any, reduced_offsets: Any, length: int,
    channels_per_task: int, reduced_per_task: int, run_per_task: int, repeats: int, count: float,
) -> None:  # fmt: skip
    """Both passes of a task with whole channels. shift is zero, and becomes the number that the second subtracts."""
    block, square_block = np.zeros(channels_per_task), np.zeros(channels_per_task)
    task = take(queue)
    while task >= 0:
        _, first_channel, last_channel, first, last, begin, end = plane_task(
            task, channel_offsets.size, reduced_offsets.size, length, channels_per_task, reduced_per_task, run_per_task
        )
        _add_planes(
            X, shift, sums, None, block, square_block, channel_offsets, reduced_offsets, 0,
            first_channel, last_channel, first, last, begin, end,
        )  # fmt: skip
        for channel in range(first_channel, last_channel):
            store(shift, channel, real(shift, sums[channel] / count))
        _add_planes(
            X, shift, sums, squares, block, square_block, channel_offsets, reduced_offsets, 0,
            first_channel, last_channel, first, last, begin, end,
        )  # fmt: skip
        task = take(queue)


@kernel
def _columns(
    queue: Any, X: Any, shift: Any, sums: Any, squares: Any, channel_offsets: Any, reduced_offsets: Any, length: int,
    channels_per_task: int, reduced_per_task: int, run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """The same for columns, each its own channel."""
    channels = channel_offsets.size
    task = take(queue)
    while task >= 0:
        part, channel_index, first, last, begin, width = column_task(
            task, channels, reduced_offsets.size, length, reduced_per_task, run_per_task
        )
        partial = (part * channels + channel_index) * length + begin
        columns = width // repeats
        sums[partial : partial + width] = 0
        block, from_ = zeros(X, width), zeros(X, width)
        square_block = zeros(X, 0 if squares is None else width)
        if squares is not None:
            squares[partial : partial + width] = 0
        for column in range(width):
            from_[column] = load(shift, channel_index * length + begin + column % columns)
        for index in range(first, last):
            offset = channel_offsets[channel_index] + reduced_offsets[index] + begin
            for column in range(min(width, X.size - offset)):
                d = load(X, offset + column) - load(from_, column)
                store(block, column, load(block, column) + d)
                if squares is not None:
                    store(square_block, column, load(square_block, column) + d * d)
            if (index - first) % BLOCK == BLOCK - 1 or index == last - 1:
                flush(block, sums, partial)
                if squares is not None:
                    flush(square_block, squares, partial)
        task = take(queue)


class Statistics:
    """Mean and variance of X, of type `dtype`."""

    def __init__(self, runs: Runs, dtype: np.dtype) -> None:
        self._count = runs.count
        runs = runs.by_channel(dtype.itemsize)
        self._passes = (_OnePass if runs.whole_channels else _TwoPasses)(runs, dtype)
        self.nbytes = self._passes.nbytes

    def __call__(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the variance of each channel, in float64."""
        shift, total, squares = self._passes(X)
        apart = total / self._count
        mean = np.where(np.isfinite(shift), shift + apart, shift)  # deviations from an infinite mean are NaN
        return mean, np.maximum(squares / self._count - apart * apart, 0)


class _OnePass:
    """The shift, and the sums of deviations from it and of their squares; the second pass reads the cache."""

    def __init__(self, runs: Runs, dtype: np.dtype) -> None:
        self._runs = runs
        self._shift = arithmetic(dtype)
        self._compiled = _whole_channels(
            QUEUE, array_type(dtype), array_type(self._shift), PARTIAL, PARTIAL, *RUNS_TYPES, types.float64
        )
        self.nbytes = 0

    def __call__(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        channels = self._runs.channels
        found = np.zeros(channels, self._shift), np.empty(channels), np.empty(channels)
        arguments = (*self._runs.arguments, float(self._runs.count))
        threads.run(self._compiled, math.prod(self._runs.parts), 2 * X.nbytes, X, *found, *arguments)
        return found


class _TwoPasses:
    """The same; both passes read memory."""

    def __init__(self, runs: Runs, dtype: np.dtype) -> None:
        self._count = runs.count
        self._shift = np.zeros(runs.channels, arithmetic(dtype))
        self._first, self._second = (_Pass(runs, dtype, self._shift.dtype, squares) for squares in (False, True))
        self.nbytes = self._second.nbytes

    def __call__(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        total, _ = self._first(X, self._shift)
        shift = (total / self._count).astype(self._shift.dtype)
        return shift, *self._second(X, shift)


class _Pass:
    """Sums of deviations from the shift, and of their squares."""

    def __init__(self, runs: Runs, dtype: np.dtype, shift: np.dtype, squares: bool) -> None:
        self._runs = runs
        self._squares = squares
        self._sums = RowSums(runs.rows, runs.channels, [_FLOAT64, _FLOAT64 if squares else None])
        self._compiled = (_columns if runs.columns else _planes)(
            QUEUE, array_type(dtype), array_type(shift), *self._sums.types, *RUNS_TYPES
        )
        self.nbytes = self._sums.nbytes

    def __call__(self, X: Any, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The second has arbitrary values if squares are not requested."""
        total, squares = np.empty(self._runs.channels), np.empty(self._runs.channels)
        partials = self._sums.partials()
        threads.run(self._compiled, math.prod(self._runs.parts), X.nbytes, X, shift, *partials, *self._runs.arguments)
        self._sums.add(partials, (total, squares if self._squares else None))
        return total, squares
