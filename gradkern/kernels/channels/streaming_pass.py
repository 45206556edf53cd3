"""One pass of the streaming kernel: a block processes its items one after another.

A thread prefetches its own vectors of the next rows into its own places in shared memory (cp.async). Threads wait for
each other only at the end of an item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import number_access
from gradkern.kernels.channels.activation import activation_of, derivative_of
from gradkern.kernels.channels.streaming_channels import at_once, channel_loader
from gradkern.kernels.channels.streaming_config import StreamingConfig
from gradkern.kernels.channels.streaming_rows import fetcher, loader, rounder, storer
from gradkern.kernels.channels.streaming_tile import divider, outer_channel, tile_sums


def one_pass(
    config: StreamingConfig, inverse: Callable[..., Any], times_inverse: Callable[..., Any]
) -> Callable[..., None]:
    """The device function run_pass(data, parameters, results, samples, partial, ..., ended).

    data: D, D2, X, Y, Z, dX, dZ; parameters: scale, bias, mean, deviation, scale_total, bias_total, shift; results:
    scale_sum, bias_sum; share: 1/m. `ended`: the place in the ring where the previous pass ended; returns that of this
    pass.
    inverse(deviation): a channel's inverse standard deviation; times_inverse(part, channel, value, deviation): the
    result of a sum.
    """
    THREADS, WIDTH, VECTORS, STAGES = config.threads, config.width, config.vectors, config.stages
    SPLIT, TAIL, HAS_OUTER, DIRECT = config.split, config.tail, config.has_outer, config.direct
    LONG, RING, BACKWARD, FOUND = config.long, config.ring, config.backward, config.reuses_ring
    SCALE_SUM, BIAS_SUM, SUMS = config.sums_scale, config.sums_bias, config.sums
    STATISTICS, ADDS, ACTIVE = config.statistics, "D2" in config.operands, config.activation != "none"
    WRITES_DZ, GRADIENT, CENTRED = "dZ" in config.outputs, "dX" in config.outputs, config.centred
    NORMALISES, RESIDUAL, BY_Y = config.normalises, "Z" in config.operands, "Y" in config.operands
    VALUES, ADDERS = config.values, config.adders
    ELEMENTS, PER_THREAD, SUMS_PER_THREAD = VECTORS * WIDTH, VECTORS * VALUES, VECTORS * ADDERS
    ITEM, VECTOR = config.data_itemsize, WIDTH * config.data_itemsize
    NEXT = THREADS * VECTOR  # bytes from one vector of a thread to its next
    STAGE, SLOTS = config.stage_bytes, config.slots
    RING_BYTES = SLOTS * STAGE
    PASSING, PASSING_AT = len(config.reads) > len(config.held), config.passing_at
    PASSING_STAGE = config.passing_arrays * config.tile_bytes
    PASSING_END = PASSING_AT + STAGES * PASSING_STAGE

    FLOAT = float64 if config.compute == "float64" else float32
    PLACE = int64 if LONG else int32
    PARAMETERS = at_once(config)
    load_channels = channel_loader(config, inverse)
    fetch, fetch_passing = fetcher(config, config.held), fetcher(config, config.reads[len(config.held) :])
    load, store, write_and_round = loader(config), storer(config), rounder(config)
    how = config.activation, config.compute, config.compute, config.native_bfloat16
    activate, times_derivative = activation_of(*how), derivative_of(*how)
    _, put_result = number_access(config.parameter, config.compute, config.native_bfloat16)
    wait_for_copies = i.wait_for_copies(STAGES - 1)
    divide = divider(config)
    add_over_tile = tile_sums(config) if SUMS and not DIRECT else None

    @device_function
    def ahead_of_all(items: int, blocks: int) -> int:
        """The argument of `next_item` for a block's first item."""
        own = int32(cuda.blockIdx.x)
        if BACKWARD:
            return int32(own + (max(items - own, int32(0)) + blocks - 1) // blocks * blocks)
        return int32(own - blocks)

    @device_function
    def next_item(item: int, blocks: int) -> int:
        return int32(item - blocks) if BACKWARD else int32(item + blocks)

    @device_function
    def next_slot(slot: int) -> int:
        """The next slot of the ring. In reverse order each row has the slot of the first pass."""
        if BACKWARD:
            slot = int32(slot - STAGE)
            if slot < 0:
                slot = int32(RING_BYTES - STAGE)
        else:
            slot = int32(slot + STAGE)
            if slot == RING_BYTES:
                slot = int32(0)
        return slot

    @device_function
    def is_item(item: int, items: int) -> bool:
        """Whether a result of next_item is an item of the block."""
        return item >= 0 if BACKWARD else item < items

    @device_function
    def begin(
        item: int, count: int, row: int, tile: int, tiles: int, rows_each: int, rows_over: int, groups: int
    ) -> Any:  # fmt: skip
        """Of an item: the bytes where this thread's first vector of the first row begins and where its inner array
        ends; its rows; its vectors; its tile, group and inner array.
        """
        line = i.quotient(item, tiles)
        outer_index = i.quotient(line, groups) if HAS_OUTER else int32(0)
        group, tile_of_row = int32(line - outer_index * groups), int32(item - line * tiles)
        first = int64(group) * row + int64(tile_of_row) * tile + int32(cuda.threadIdx.x) * WIDTH
        vectors = min(tile, row - PLACE(tile_of_row) * tile) // WIDTH
        from_outer = int64(outer_index) * count
        left = rows_each + (1 if group < rows_over else 0)
        at, end = (from_outer + first) * ITEM, (from_outer + count) * ITEM
        if BACKWARD:
            at += int64(left - 1) * groups * row * ITEM
        return at, end, int32(left), int32(vectors), tile_of_row, group, outer_index

    @device_function
    def next_passing(place: int) -> int:
        """The next slot of the ring of passing_arrays."""
        place = int32(place + PASSING_STAGE)
        return int32(PASSING_AT) if place == PASSING_END else place

    @device_function
    def run_pass(
        data: Any, parameters: Any, results: Any, samples: Any, partial: int,
        count: int, inner_channels: int, spatial: int, row: int, tile: int, tiles: int, rows_each: int, rows_over: int,
        groups: int, items: int, lane_bits: int, repeats: int, parts: int, share: Any, epsilon: Any, row_of_sums: int,
        outer_sizes: tuple[int, int, int, int, int], ended: int,
    ) -> int:  # fmt: skip
        n1, n2, n3, n4, n5 = outer_sizes
        _, _, X, Y, _, dX, dZ = data
        scale_sum, bias_sum = results
        thread, blocks = int32(cuda.threadIdx.x), int32(cuda.gridDim.x)
        inner_channels, spatial, row, tile = PLACE(inner_channels), PLACE(spatial), PLACE(row), PLACE(tile)
        tiles, rows_each, rows_over = int32(tiles), int32(rows_each), int32(rows_over)
        groups, items, lane_bits = int32(groups), int32(items), int32(lane_bits)
        step = int64(groups) * row * (-ITEM if BACKWARD else ITEM)
        shared = i.shared_memory()

        x, d = cuda.local.array(ELEMENTS, FLOAT), cuda.local.array(ELEMENTS, FLOAT)
        d2, y = cuda.local.array(ELEMENTS, FLOAT), cuda.local.array(ELEMENTS, FLOAT)
        z = cuda.local.array(ELEMENTS, FLOAT)
        vector = cuda.local.array(WIDTH, FLOAT)
        means, gains = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        biases = cuda.local.array(PER_THREAD, FLOAT)
        shifts, slopes = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        scale_sums, bias_sums = cuda.local.array(SUMS_PER_THREAD, FLOAT), cuda.local.array(SUMS_PER_THREAD, FLOAT)

        # two interleaved loops over the same items: one prefetches rows, the other uses them STAGES - 1 rows later
        item, left, vectors, at, end = ahead_of_all(items, blocks), int32(0), int32(0), int64(0), int64(0)
        tile_of_row, group, outer_index, channels_at = int32(0), int32(0), int32(0), int64(0)
        taken = next_slot(ended) if BACKWARD else int32(ended)
        ahead, ahead_left, ahead_vectors = item, int32(0), int32(0)
        ahead_at, ahead_end, asked, slot, found = int64(0), int64(0), int32(0), taken, int32(0)
        passing_slot, passing = int32(PASSING_AT), int32(PASSING_AT)
        while True:
            if RING:
                if ahead_left == 0 and is_item(ahead, items):
                    ahead = next_item(ahead, blocks)
                    if is_item(ahead, items):
                        ahead_at, ahead_end, ahead_left, ahead_vectors, _, _, _ = begin(
                            ahead, count, row, tile, tiles, rows_each, rows_over, groups
                        )
                if ahead_left > 0:
                    if FOUND and found < SLOTS:  # left in the ring by the previous pass
                        found = int32(found + 1)
                    else:
                        fetch(shared + slot, data, ahead_at, ahead_vectors, ahead_end)
                    if PASSING:
                        fetch_passing(shared + passing_slot, data, ahead_at, ahead_vectors, ahead_end)
                    ahead_left = int32(ahead_left - 1)
                    ahead_at += step
                i.commit_copies()
                slot = next_slot(slot)
                if PASSING:
                    passing_slot = next_passing(passing_slot)
                if asked < STAGES - 1:
                    asked = int32(asked + 1)
                    continue

            if left == 0:
                item = next_item(item, blocks)
                if not is_item(item, items):
                    break
                at, end, left, vectors, tile_of_row, group, outer_index = begin(
                    item, count, row, tile, tiles, rows_each, rows_over, groups
                )
                channels_at = (
                    int64(outer_channel(outer_index, n1, n2, n3, n4, n5)) * inner_channels if HAS_OUTER else int64(0)
                )
                for n in range(SUMS_PER_THREAD):
                    scale_sums[n] = FLOAT(0)
                    bias_sums[n] = FLOAT(0)
                for j in range(VECTORS):
                    place = PLACE(PLACE(tile_of_row) * tile + (j * THREADS + thread) * WIDTH)
                    run = PLACE(divide(place, spatial))
                    into = PLACE(place - run * spatial)
                    channel = PLACE(run - divide(run, inner_channels) * inner_channels)
                    for e in range(0, VALUES, PARAMETERS):
                        load_channels(means, gains, biases, shifts, slopes, j * VALUES + e, channels_at + channel,
                                      X, parameters, samples, share, epsilon)  # fmt: skip
                        into = PLACE(into + 1)
                        if into == spatial:
                            into, channel = PLACE(0), PLACE(channel + 1)
                            if channel == inner_channels:
                                channel = PLACE(0)

            if RING:
                wait_for_copies()
            if not RING:  # all loads first, so that their latencies overlap
                for j in range(VECTORS):
                    here = at + j * NEXT
                    if thread + j * THREADS < vectors and here < end:
                        load(x, d, d2, y, z, j, data, here, end, shared + taken, shared + passing)
            for j in range(VECTORS):
                here = at + j * NEXT
                if thread + j * THREADS < vectors and here < end:
                    if RING:
                        load(x, d, d2, y, z, j, data, here, end, shared + taken, shared + passing)
                    for e in range(WIDTH):  # D from the loaded values
                        n, xd = j * VALUES + (e if SPLIT else 0), j * WIDTH + e
                        if STATISTICS:
                            d[xd] = x[xd] - means[n]
                        if ADDS:
                            d[xd] += d2[xd]
                        if ACTIVE and not (NORMALISES or STATISTICS):
                            t = y[xd] if BY_Y else (x[xd] - means[n]) * gains[n] + biases[n]
                            d[xd] = times_derivative(d[xd], t)
                    if WRITES_DZ:
                        write_and_round(d, j, dZ, here, end, shared + taken)
                    for e in range(WIDTH):
                        n, s, xd = j * VALUES + (e if SPLIT else 0), j * ADDERS + e % ADDERS, j * WIDTH + e
                        if not TAIL or here + e * ITEM < end:
                            if SCALE_SUM:
                                scale_sums[s] += d[xd] * (x[xd] - means[n])
                            if BIAS_SUM:
                                bias_sums[s] += d[xd]
                        if CENTRED:
                            vector[e] = gains[n] * (d[xd] - shifts[n] - (x[xd] - means[n]) * slopes[n])
                        elif GRADIENT:
                            vector[e] = d[xd] * gains[n]
                        if NORMALISES:
                            t = (x[xd] - means[n]) * gains[n] + biases[n]
                            vector[e] = activate(t + z[xd] if RESIDUAL else t)
                    if GRADIENT:
                        store(dX, vector, here, end)
                    if NORMALISES:
                        store(Y, vector, here, end)
            at += step
            left = int32(left - 1)
            taken = next_slot(taken)
            if PASSING:
                passing = next_passing(passing)

            if SUMS and left == 0:
                if DIRECT:
                    for j in range(VECTORS):
                        place = int64(tile_of_row) * tile + (j * THREADS + thread) * WIDTH
                        for e in range(WIDTH):
                            if thread + j * THREADS < vectors and place + e < count:
                                channel = place + e
                                s = j * ADDERS + e % ADDERS
                                if SCALE_SUM:
                                    value = times_inverse(0, channel, scale_sums[s], parameters[3])
                                    put_result(scale_sum, channel, value)
                                if BIAS_SUM:
                                    put_result(bias_sum, channel, bias_sums[s])
                else:
                    add_over_tile(scale_sums, bias_sums, partial, outer_index, group, tile_of_row, vectors,
                                  inner_channels, spatial, tile, tiles, groups, lane_bits, repeats, parts, row_of_sums,
                                  n1, n2, n3, n4, n5)  # fmt: skip
        return taken

    return run_pass
