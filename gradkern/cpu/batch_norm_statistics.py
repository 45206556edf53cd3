"""Mean and variance of each channel of a batch, in two passes.

The first finds the mean. The second adds up deviations from it and their squares, and corrects the rounding of the
first (T. F. Chan, G. H. Golub and R. J. LeVeque, Algorithms for computing the sample variance, 1983):

    d = X - shift,  mean = shift + sum of d/m,  variance = sum of d^2/m - (sum of d/m)^2
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from gradkern.cpu import threads
from gradkern.cpu.batch_norm import Reduce, add_planes
from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import arithmetic, array_type, real, store
from gradkern.cpu.runs import RUNS_TYPES, Runs, plane_task
from gradkern.cpu.sums import PARTIAL
from gradkern.cpu.threads import QUEUE, take

_FLOAT64 = np.dtype(np.float64)


@kernel
def _whole_channels(
    queue: Any, X: Any, shift: Any, sums: Any, squares: Any, channel_offsets: Any, reduced_offsets: Any, length: int,
    channels_per_task: int, reduced_per_task: int, run_per_task: int, repeats: int, count: float,
) -> None:  # fmt: skip
    """Both passes of a task with whole channels. shift becomes the number that the second subtracts."""
    block, square_block = np.zeros(channels_per_task), np.zeros(channels_per_task)
    task = take(queue)
    while task >= 0:
        _, first_channel, last_channel, first, last, begin, end = plane_task(
            task, channel_offsets.size, reduced_offsets.size, length, channels_per_task, reduced_per_task, run_per_task
        )
        add_planes(
            X, None, None, None, None, None, None, None, None, sums, square_block, block,
            channel_offsets, reduced_offsets, 0, first_channel, last_channel, first, last, begin, end,
        )  # fmt: skip
        for channel in range(first_channel, last_channel):
            store(shift, channel, real(shift, sums[channel] / count))
        add_planes(
            X, None, None, shift, None, None, None, None, squares, sums, square_block, block,
            channel_offsets, reduced_offsets, 0, first_channel, last_channel, first, last, begin, end,
        )  # fmt: skip
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
        found = np.empty(channels, self._shift), np.empty(channels), np.empty(channels)
        arguments = (*self._runs.arguments, float(self._runs.count))
        threads.run(self._compiled, math.prod(self._runs.parts), 2 * X.nbytes, X, *found, *arguments)
        return found


class _TwoPasses:
    """The same; both passes read memory."""

    def __init__(self, runs: Runs, dtype: np.dtype) -> None:
        self._count, self._channels = runs.count, runs.channels
        self._shift = arithmetic(dtype)
        given = array_type(dtype), types.none, types.none, array_type(self._shift), types.none
        self._first = Reduce(runs, given, types.none, [None, _FLOAT64])
        self._second = Reduce(runs, given, types.none, [_FLOAT64, _FLOAT64])
        self.nbytes = self._second.nbytes

    def __call__(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        total, squares = np.empty(self._channels), np.empty(self._channels)
        self._first((X, None, None, None, None), None, [None, total])
        shift = (total / self._count).astype(self._shift)
        self._second((X, None, None, shift, None), None, [squares, total])
        return shift, total, squares
