"""The layout of a batch norm's channels in memory, and its distribution to tasks.

Each axis is a channel axis or reduced. Neighbouring axes of one kind are merged. The last axis is a run of elements. A
run's offset is the sum of one term for the channel axes before it and one for the reduced axes before it. A run of
reduced axes is a plane of one channel; the elements of a run of channel axes are columns, each of its own channel. This
covers every layout: N C H W, channels-last, N x C, and DirectML's choice of any axes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Refusal, Tensor
from gradkern.cpu.compile import INLINE
from gradkern.cpu.sums import SPAN, fold, rows_per_task
from gradkern.strides import is_dense, memory_order, merged_axes

_PIECE = 8 * SPAN  # least elements of a plane, or of planes side by side, of one task
_MOST_PIECES = 1 << 10  # of a plane: each leaves a partial sum
_WIDTH = 4096  # columns of one task, at most
_CACHED = 1 << 20  # bytes that a task reads twice, at most: half of the L2 cache of a server's core
_SIDE_BY_SIDE = 512  # elements of planes of a task of whole channels, to avoid partial cache lines
_LEAST_TASKS = 16


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs, and their distribution to tasks.

    channel_offsets, reduced_offsets   of the runs' first elements, by index over the axes of that kind before the run
    length     elements of a run
    columns    whether its elements are channels
    folded     rows of columns merged to one run
    channels   their number
    count      elements of each channel
    channels_per_task, reduced_per_task, run_per_task   the part of each in a task
    """

    channel_offsets: np.ndarray
    reduced_offsets: np.ndarray
    length: int
    columns: bool
    folded: int
    channels: int
    count: int
    channels_per_task: int
    reduced_per_task: int
    run_per_task: int

    @staticmethod
    def of(sizes: Sequence[int], is_channel: Sequence[bool]) -> Runs:
        """The runs of a dense array, its axes in memory order."""
        axes = merged_axes(sizes, is_channel)
        channels = math.prod(size for size, of_channels in axes if of_channels)
        count = math.prod(size for size, of_channels in axes if not of_channels)
        length, columns = axes.pop() if axes else (1, False)
        stride, offsets = length, {True: np.zeros(1, np.int64), False: np.zeros(1, np.int64)}
        _require_memory(axes)
        for size, of_channels in reversed(axes):
            offsets[of_channels] = np.add.outer(np.arange(size) * stride, offsets[of_channels]).reshape(-1)
            stride *= size
        outer, reduced = offsets[True], offsets[False]
        if not columns:
            at_once = max(1, SPAN // max(1, length))
            reduced_per_task = max(-(-reduced.size // 64), -(-_PIECE // max(1, at_once * length)))
            piece = _PIECE * max(1, -(-length // (_PIECE * _MOST_PIECES)))
            return Runs(outer, reduced, length, False, 1, channels, count, at_once, reduced_per_task, piece)
        folded = fold(reduced.size, length) if outer.size == 1 else 1
        reduced, length = reduced[::folded].copy(), length * folded
        return Runs(outer, reduced, length, True, folded, channels, count, 1, rows_per_task(reduced.size), _WIDTH)

    @staticmethod
    def of_tensor(tensor: Tensor, is_channel: Sequence[bool]) -> tuple[tuple[int, ...] | None, Runs]:
        """The memory order of a tensor in the kernels, and its runs in that order."""
        order = _memory_order(tensor, is_channel)
        axes = range(len(tensor.shape)) if order is None else order
        return order, Runs.of([tensor.shape[axis] for axis in axes], [is_channel[axis] for axis in axes])

    def by_channel(self, nbytes: int) -> Runs:
        """These runs with whole channels in a task, if a second pass then finds its data in the L2 cache; else these
        unchanged. nbytes: of the data, for each element.
        """
        at_once = max(1, _SIDE_BY_SIDE // max(1, self.length))
        of_task, of_all = (each * self.count * nbytes for each in (at_once, self.channels))
        few = self.channels < _LEAST_TASKS * at_once and of_all > _CACHED
        if self.columns or few or of_task > _CACHED:
            return self
        reduced, run = max(1, self.reduced_offsets.size), max(1, self.length)
        return replace(self, channels_per_task=at_once, reduced_per_task=reduced, run_per_task=run)

    @property
    def whole_channels(self) -> bool:
        """Whether a task has all elements of its channels."""
        return not self.columns and self.parts[1:] == (1, 1)

    @property
    def parts(self) -> tuple[int, int, int]:
        """The numbers of tasks along the channel axes, the reduced axes and the run."""
        channels = -(-self.channel_offsets.size // self.channels_per_task)
        reduced = -(-self.reduced_offsets.size // self.reduced_per_task)
        return channels, reduced, -(-self.length // self.run_per_task)

    @property
    def rows(self) -> int:
        """The number of rows of partial sums, each with one sum per channel, that the tasks write."""
        _, reduced, run = self.parts
        return reduced * (self.folded if self.columns else run)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the kernels."""
        steps = (self.channels_per_task, self.reduced_per_task, self.run_per_task)
        return (self.channel_offsets, self.reduced_offsets, self.length, *steps, self.folded)


_OFFSETS = types.Array(types.int64, 1, "C")
RUNS_TYPES = (_OFFSETS, _OFFSETS, *(types.int64,) * 5)
"""Numba's types of `Runs.arguments`."""


@numba.njit(**INLINE)
def plane_task(
    task: int,
    channels: int,
    reduced: int,
    length: int,
    channels_per_task: int,
    reduced_per_task: int,
    run_per_task: int,
) -> tuple[int, int, int, int, int, int, int]:
    """Of a task of planes: its part of the reduced axes and the run, together a row of partial sums; and its channels,
    its runs of each and its elements of each run, from the first to behind the last.
    """
    channel_parts = (channels + channels_per_task - 1) // channels_per_task
    run_parts = (length + run_per_task - 1) // run_per_task
    part = task // channel_parts
    channel = task % channel_parts * channels_per_task
    index = part // run_parts * reduced_per_task
    begin = part % run_parts * run_per_task
    return (
        part,
        channel,
        min(channel + channels_per_task, channels),
        index,
        min(index + reduced_per_task, reduced),
        begin,
        min(begin + run_per_task, length),
    )


@numba.njit(**INLINE)
def column_task(
    task: int, channels: int, reduced: int, length: int, reduced_per_task: int, run_per_task: int
) -> tuple[int, int, int, int, int, int]:
    """Of a task of columns: its part of the reduced axes, its index of the channels before the run, its runs from the
    first to behind the last, its first column and their number.
    """
    run_parts = (length + run_per_task - 1) // run_per_task
    channel_parts = channels * run_parts
    part = task // channel_parts
    index = part * reduced_per_task
    begin = task % run_parts * run_per_task
    return (
        part,
        task % channel_parts // run_parts,
        index,
        min(index + reduced_per_task, reduced),
        begin,
        min(run_per_task, length - begin),
    )


def _require_memory(axes: Sequence[tuple[int, bool]]) -> None:
    """Refuse axes whose tables of offsets exceed a quarter of this machine's memory."""
    tables = sum(8 * math.prod(size for size, kind in axes if kind == of_channels) for of_channels in (True, False))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if tables > memory // 4:
        raise Refusal(f"needs tables of {tables} bytes, more than a quarter of this machine's memory")


def _memory_order(tensor: Tensor, is_channel: Sequence[bool]) -> tuple[int, ...] | None:
    """The axes in memory order, slowest first. None, C order, for arrays that must be copied anyway, and for those
    whose channels would be in another order than the parameters.
    """
    order = memory_order(tensor)
    channel_axes = [axis for axis in order if is_channel[axis] and tensor.shape[axis] != 1]
    return order if is_dense(tensor, order) and channel_axes == sorted(channel_axes) else None
