"""Kernels between the tensors and the matrices of the products: gather columns, scatter results, sum planes.

They take any strides; rows whose elements are adjacent run as vector code. Positions of a grid are counted in one
number, (image, q0, q1, q2) in row-major order, so that any range of them can be a slice.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.extending import intrinsic

from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import load, real, store
from gradkern.cpu.threads import take

__all__ = [
    "contiguous",
    "gather",
    "next_line",
    "pack",
    "position",
    "scatter",
    "spacing_of",
    "sum_planes",
]

BLOCK = 2048


@kernel
def gather(
    queue: Any,
    source: Any,
    first_row: int,
    start: int,
    grid: Any,
    steps: Any,
    offsets0: Any,
    offsets1: Any,
    offsets2: Any,
    columns: Any,
) -> None:
    """columns[row, tap, p] = source[image, first_row + row, steps*q + offset[tap]], 0 outside; p counts (image, q)."""
    length = columns.shape[2]
    spacing = spacing_of(source)
    zero = real(source, 0)
    taps1, taps2 = offsets1.shape[0], offsets2.shape[0]
    row = take(queue)
    while row >= 0:
        memory = contiguous(source[0, first_row + row, 0, 0])
        for tap in range(columns.shape[1]):
            t0, t1, t2 = tap // (taps1 * taps2), tap // taps2 % taps1, tap % taps2
            target = contiguous(columns[row, tap])
            image, q0, q1, q2 = position(start, grid)
            done = 0
            while done < length:  # the part of one line of the grid that the slice holds
                count = min(grid[2] - q2, length - done)
                begin = end = count
                if offsets0[t0, 1] <= q0 < offsets0[t0, 2] and offsets1[t1, 1] <= q1 < offsets1[t1, 2]:
                    begin = min(max(offsets2[t2, 1] - q2, 0), count)
                    end = max(min(offsets2[t2, 2] - q2, count), begin)
                i0 = steps[0] * q0 + offsets0[t0, 0]
                i1 = steps[1] * q1 + offsets1[t1, 0]
                i2 = steps[2] * q2 + offsets2[t2, 0]
                first = image * spacing[0] + i0 * spacing[2] + i1 * spacing[3] + i2 * spacing[4]
                for j in range(begin):
                    store(target, done + j, zero)
                if steps[2] * spacing[4] == 1:
                    for j in range(begin, end):
                        store(target, done + j, load(memory, first + j))
                else:
                    for j in range(begin, end):
                        store(target, done + j, load(memory, first + j * steps[2] * spacing[4]))
                for j in range(end, count):
                    store(target, done + j, zero)
                done += count
                image, q0, q1, q2 = next_line(image, q0, q1, grid)
        row = take(queue)


@kernel
def scatter(
    queue: Any,
    result: Any,
    first_group: int,
    channels: int,
    start: int,
    grid: Any,
    steps: Any,
    firsts: Any,
    target: Any,
) -> None:
    """target[image, (group, channel), steps*q + firsts[phase]] = result[group, (phase, channel), p], if it exists."""
    rows, length = result.shape[1], result.shape[2]
    task = take(queue)
    while task >= 0:
        group, row = divmod(task, rows)
        phase, channel = divmod(row, channels)
        channel += (first_group + group) * channels
        image, q0, q1, q2 = position(start, grid)
        done = 0
        while done < length:
            count = min(grid[2] - q2, length - done)
            i0, i1 = steps[0] * q0 + firsts[phase, 0], steps[1] * q1 + firsts[phase, 1]
            if 0 <= i0 < target.shape[2] and 0 <= i1 < target.shape[3]:
                first = steps[2] * q2 + firsts[phase, 2]
                _store_line(result[group, row, done : done + count], target[image, channel, i0, i1], first, steps[2])
            done += count
            image, q0, q1, q2 = next_line(image, q0, q1, grid)
        task = take(queue)


@kernel
def pack(queue: Any, W: Any, channels: int, taps: Any, packed: Any) -> None:
    """packed[(group, phase, channel), m, t] = W[(group, m), channel, taps[phase, t]]."""
    phases, filters = taps.shape[0], packed.shape[1]
    spacing = W.strides[4] // W.itemsize
    row = take(queue)
    while row >= 0:
        rest, channel = divmod(row, channels)
        group, phase = divmod(rest, phases)
        for m in range(filters):
            for t in range(taps.shape[1]):
                line = contiguous(W[group * filters + m, channel, taps[phase, t, 0], taps[phase, t, 1]])
                packed[row, m, t] = load(line, taps[phase, t, 2] * spacing)
        row = take(queue)


@kernel
def sum_planes(queue: Any, source: Any, sums: Any) -> None:
    """sums[row] = the sum of source[image, row, position] over images and positions: float64, in blocks."""
    size = source.shape[4]
    spacing = source.strides[4] // source.itemsize
    row = take(queue)
    while row >= 0:
        total = 0.0
        for image in range(source.shape[0]):
            for i0 in range(source.shape[2]):
                for i1 in range(source.shape[3]):
                    line = contiguous(source[image, row, i0, i1])
                    for start in range(0, size, BLOCK):
                        block = 0.0
                        if spacing == 1:
                            for j in range(start, min(start + BLOCK, size)):
                                block += load(line, j)
                        else:
                            for j in range(start, min(start + BLOCK, size)):
                                block += load(line, j * spacing)
                        total += block
        sums[row] = total
        row = take(queue)


@njit(**INLINE)
def position(start: int, grid: Any) -> tuple[int, int, int, int]:
    rest, q2 = divmod(start, grid[2])
    rest, q1 = divmod(rest, grid[1])
    image, q0 = divmod(rest, grid[0])
    return image, q0, q1, q2


@njit(**INLINE)
def next_line(image: int, q0: int, q1: int, grid: Any) -> tuple[int, int, int, int]:
    q1 += 1
    if q1 == grid[1]:
        q1 = 0
        q0 += 1
        if q0 == grid[0]:
            q0 = 0
            image += 1
    return image, q0, q1, 0


@njit(**INLINE)
def spacing_of(array: Any) -> tuple[int, int, int, int, int]:
    """The strides in elements."""
    s, item = array.strides, array.itemsize
    return s[0] // item, s[1] // item, s[2] // item, s[3] // item, s[4] // item


@njit(**INLINE)
def _store_line(values: Any, line: Any, first: int, step: int) -> None:
    """line[first + step*j] = values[j] wherever that exists."""
    begin = max(0, -(first // step))
    end = min(values.shape[0], (line.shape[0] - 1 - first) // step + 1)
    memory, spacing = contiguous(line), line.strides[0] // line.itemsize
    if step * spacing == 1:
        for j in range(begin, end):
            store(memory, first * spacing + j, values[j])
    else:
        for j in range(begin, end):
            store(memory, (first + step * j) * spacing, values[j])


def _contiguous(typing: Any, line: Any) -> Any:
    """The same line, typed as contiguous: its elements are then read and written by load and store, at any spacing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if context.enable_nrt:
            context.nrt.incref(builder, signature.args[0], arguments[0])
        return arguments[0]

    return line.copy(layout="C")(line), generate


contiguous: Any = intrinsic(_contiguous)  # a type checker would see _contiguous's own arguments
