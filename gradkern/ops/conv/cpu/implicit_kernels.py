"""The kernels of both products of the implicit GEMM, and the one that fills their rows, see `implicit_gemm`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import load, real, store
from gradkern.cpu.threads import take
from gradkern.ops.conv.cpu.lines import contiguous, next_line, position, spacing_of
from gradkern.ops.conv.cpu.microkernel import DOT_FILTERS, DOT_ROWS, PANEL, dot_block, product_block

PANELS_PER_TASK = 8  # of a task of product: the results of as many, at a tile of positions, fit the L2 cache
DOT_POSITIONS = 2048  # of DOT_FILTERS and DOT_ROWS rows at once: they fit the L1 cache
DOT_BLOCKS = (4, 8)  # of DOT_FILTERS filters and DOT_ROWS rows: what a task of dot takes


@kernel
def pack_panels(queue: Any, W: Any, channels: int, of_data: bool, taps: Any, panels: Any) -> None:
    """panels[group, panel, (row, tap), r] is W's element for result (phase, channel) = panel*PANEL + r; behind the
    last one its elements again. A result is one of `channels` filters and a row a channel of W; for a gradient of data
    it is the reverse.
    """
    blocks, taps_count = panels.shape[1], taps.shape[1]
    rows = panels.shape[2] // max(taps_count, 1)
    results, line = taps.shape[0] * channels, taps_count * PANEL
    spacing = spacing_of(W)
    result_step, row_step = spacing[0], spacing[1]
    group_step = spacing[0] * channels
    if of_data:
        result_step, row_step = spacing[1], spacing[0]
        group_step = spacing[0] * rows
    places = np.empty(line, np.int64)
    task = take(queue)
    while task >= 0:
        group, block = divmod(task, blocks)
        for r in range(PANEL):
            phase, channel = divmod(min(block * PANEL + r, results - 1), channels)
            base = group * group_step + channel * result_step
            for tap in range(taps_count):
                k0, k1, k2 = taps[phase, tap, 0], taps[phase, tap, 1], taps[phase, tap, 2]
                places[tap * PANEL + r] = base + k0 * spacing[2] + k1 * spacing[3] + k2 * spacing[4]
        target = contiguous(panels[group, block].reshape(-1))
        memory = contiguous(W[0, 0, 0, 0])
        for row in range(rows):
            for i in range(line):
                store(target, row * line + i, load(memory, places[i] + row * row_step))
        task = take(queue)


@kernel
def product(
    queue: Any,
    panels: Any,
    first_group: int,
    rows: Any,
    group_rows: int,
    offsets: Any,
    chunk_rows: int,
    bias: Any,
    start: int,
    count: int,
    tile: int,
    block: int,
    grid: Any,
    pitches: Any,
    steps: Any,
    firsts: Any,
    channels: int,
    target: Any,
) -> None:
    """target[image, (group, channel), steps*q + firsts[phase]] = bias + panels * rows, wherever that exists, for the
    positions from start to start + count. A task is a group, a tile of positions and PANELS_PER_TASK panels.

    group_rows  of `rows` in a group; chunk_rows of them are taken at once, whose columns begin at `offsets`
    """
    panel_count, depth = panels.shape[1], panels.shape[2]
    results, pitch = firsts.shape[0] * channels, rows.shape[1]
    spacing = spacing_of(target)
    step = steps[2] * spacing[4]
    tiles = (count + tile - 1) // tile
    parts = (panel_count + PANELS_PER_TASK - 1) // PANELS_PER_TASK
    result = np.empty((PANELS_PER_TASK * PANEL, tile), panels.dtype)
    task = take(queue)
    while task >= 0:
        rest, part = divmod(task, parts)
        group, number = divmod(rest, tiles)
        begin, first = number * tile, part * PANELS_PER_TASK
        width = min(tile, count - begin)
        last = min(first + PANELS_PER_TASK, panel_count)
        base = (first_group + group) * panel_count
        for row in range((last - first) * PANEL):
            value = real(panels, 0)
            if bias.size and first * PANEL + row < results:
                value = bias[(first_group + group) * channels + (first * PANEL + row) % channels]
            line = contiguous(result[row])
            for p in range(tile):
                store(line, p, value)
        done = 0
        for chunk in range(0, group_rows, chunk_rows):
            size = min(offsets.size, depth - done)
            at = (group * group_rows + chunk) * pitch + begin
            if size > 0:
                for p in range(0, width, block):
                    for panel in range(first, last):
                        weights = ((base + panel) * depth + done) * PANEL
                        into = (panel - first) * PANEL * tile + p
                        product_block(panels, weights, size, rows, at + p, offsets, result, into, tile)
            done += size
        for row in range(min((last - first) * PANEL, results - first * PANEL)):
            phase, channel = divmod(first * PANEL + row, channels)
            channel += (first_group + group) * channels
            line, memory = contiguous(result[row]), contiguous(target[0, channel, 0, 0])
            image, q0, q1, q2 = position(start + begin, pitches)
            f2 = firsts[phase, 2]
            low, high = max(0, -(f2 // steps[2])), min(grid[2], (target.shape[4] - 1 - f2) // steps[2] + 1)
            at = 0
            while at < width and image < target.shape[0]:
                i0, i1 = steps[0] * q0 + firsts[phase, 0], steps[1] * q1 + firsts[phase, 1]
                if q0 < grid[0] and q1 < grid[1] and 0 <= i0 < target.shape[2] and 0 <= i1 < target.shape[3]:
                    left, right = max(low, q2), min(high, q2 + width - at)
                    base = image * spacing[0] + i0 * spacing[2] + i1 * spacing[3]
                    base += (steps[2] * left + f2) * spacing[4]
                    here = at + left - q2
                    if step == 1:
                        for j in range(right - left):
                            store(memory, base + j, load(line, here + j))
                    else:
                        for j in range(right - left):
                            store(memory, base + j * step, load(line, here + j))
                at += pitches[2] - q2
                image, q0, q1, q2 = next_line(image, q0, q1, pitches)
        task = take(queue)


@kernel
def dot(
    queue: Any, left: Any, filters: int, rows: Any, group_rows: int, offsets: Any, length: int, lanes: int, total: Any
) -> None:
    """total[group, m, r] += sum over p < length of  left[(group, m), p] * rows[group, offsets[r] + p].

    `left` is zero from `length` on, as far as whole vectors reach, and has DOT_FILTERS rows more than those it counts.
    A task is a group and a block of the total.
    """
    pitch, depth = left.shape[1], total.shape[2]
    high, wide = DOT_BLOCKS[0] * DOT_FILTERS, DOT_BLOCKS[1] * DOT_ROWS
    down, across = (filters + high - 1) // high, (depth + wide - 1) // wide
    sums = np.empty(DOT_FILTERS * DOT_ROWS + lanes, total.dtype)
    task = take(queue)
    while task >= 0:
        rest, column = divmod(task, across)
        group, line = divmod(rest, down)
        base = group * group_rows * rows.shape[1]
        for begin in range(0, length, DOT_POSITIONS):
            count = (min(DOT_POSITIONS, length - begin) + lanes - 1) // lanes * lanes
            for m in range(line * high, min((line + 1) * high, filters), DOT_FILTERS):
                at = (group * filters + m) * pitch + begin
                for r in range(column * wide, min((column + 1) * wide, depth), DOT_ROWS):
                    dot_block(left, at, pitch, rows, base + begin, offsets, r, count, sums)
                    for i in range(min(DOT_FILTERS, filters - m)):
                        for j in range(min(DOT_ROWS, depth - r)):
                            total[group, m + i, r + j] += sums[i * DOT_ROWS + j]
        task = take(queue)


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
