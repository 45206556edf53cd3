"""How the implicit GEMM sees a tensor: each channel as a row, with the zeros that the taps need between its lines.

The grid's positions (image, q0, q1, q2) are counted in one number, with pitches that leave a gap behind each line and
plane. A gap serves the taps that look beyond a line's end and those that look before the next one's begin. Then every
tap sees a whole row at one distance, whatever the position: rows of a column matrix that is never made.

Where the grid steps over the tensor, its elements are sorted by their residues modulo the steps: a channel has a row
for each residue that some tap meets. And where an axis is short, so that its gaps would be much of what is computed, a
channel has a row for each of that axis's taps instead, without gaps.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import load, real, store
from gradkern.cpu.threads import take
from gradkern.ops.conv.cpu.lines import contiguous, next_line, position, spacing_of
from gradkern.ops.conv.geometry import Axes, Table, Window

# To fill an element of a row takes as long as so many multiply-adds, and in lines of so many elements twice as long.
_FILL, _SHORT_LINE = 40, 20


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
        choices = [cls(window, sizes, expanded) for expanded in product(*free)]
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


@kernel
def fill(
    queue: Any,
    source: Any,
    first_channel: int,
    start: int,
    count: int,
    pitches: Any,
    steps: Any,
    firsts: Any,
    rows: Any,
) -> None:
    """rows[(channel, r), p] = source[image, first_channel + channel, steps*u + firsts[r]], 0 where there is none and
    from p = count on; p counts (image, u) from `start`.
    """
    spacing = spacing_of(source)
    step = steps[2] * spacing[4]
    zero = real(source, 0)
    row = take(queue)
    while row >= 0:
        channel, r = divmod(row, firsts.shape[0])
        memory = contiguous(source[0, first_channel + channel, 0, 0])
        f0, f1, f2 = firsts[r, 0], firsts[r, 1], firsts[r, 2]
        target = contiguous(rows[row])
        for p in range(rows.shape[1]):
            store(target, p, zero)
        low, high = max(-(f2 // steps[2]), 0), min(pitches[2], (source.shape[4] - 1 - f2) // steps[2] + 1)
        image, u0, u1, u2 = position(start, pitches)
        done = 0
        while done < count and image < source.shape[0]:
            i0, i1 = steps[0] * u0 + f0, steps[1] * u1 + f1
            if 0 <= i0 < source.shape[2] and 0 <= i1 < source.shape[3]:
                begin, end = max(low, u2), min(high, u2 + count - done)
                base = image * spacing[0] + i0 * spacing[2] + i1 * spacing[3] + (steps[2] * begin + f2) * spacing[4]
                at = done + begin - u2
                if step == 1:
                    for j in range(end - begin):
                        store(target, at + j, load(memory, base + j))
                elif step == 2:
                    for j in range(end - begin):
                        store(target, at + j, load(memory, base + 2 * j))
                else:
                    for j in range(end - begin):
                        store(target, at + j, load(memory, base + j * step))
            done += pitches[2] - u2
            image, u0, u1, u2 = next_line(image, u0, u1, pitches)
        row = take(queue)
