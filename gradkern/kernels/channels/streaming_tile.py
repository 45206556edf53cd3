"""The end of an item of the streaming kernel: from sums of each thread's vectors to sums of each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.streaming_config import StreamingConfig


@device_function
def outer_channel(outer_index: int, n1: int, n2: int, n3: int, n4: int, n5: int) -> int:
    """The index of an inner array over the outer channel dimensions."""
    first, rest = outer_index % n1, outer_index // n1 // n2
    return ((rest // n3 // n4) % n5 * n3 + rest % n3) * n1 + first


def divider(config: StreamingConfig) -> Callable[..., Any]:
    """The device function divide(value, divisor), of nonnegative offsets within a row."""
    LONG = config.long

    @device_function
    def divide(value: int, divisor: int) -> int:
        return value // divisor if LONG else i.quotient(int32(value), int32(divisor))

    return divide


def tile_sums(config: StreamingConfig) -> Callable[..., None]:
    """The device function add_over_tile: writes the sums of every run to the item's partial rows."""
    THREADS, WIDTH, VECTORS = config.threads, config.width, config.vectors
    SPLIT, HAS_OUTER, LONG = config.split, config.has_outer, config.long
    SCALE_SUM, BIAS_SUM = config.sums_scale, config.sums_bias
    VALUES, ADDERS = config.values, config.adders
    GRAIN = 1 if SPLIT else WIDTH  # elements with one sum
    SUM, SUMS_AT = config.itemsize, config.sums_at
    TO_BIAS = config.sum_bytes if SCALE_SUM else 0
    MANY = SPLIT  # a run of whole vectors has few sums, and its kernel has no spare registers
    BOTH = SCALE_SUM and BIAS_SUM

    DOUBLE = config.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    PLACE = int64 if LONG else int32
    store_values = i.storer("shared", config.compute, VALUES)
    load_sum = i.loader("shared", config.compute, 1)
    store_sum = i.storer("global", config.compute, 1)
    row_address = i.row_address_long if LONG else i.row_address
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor
    divide = divider(config)

    @device_function
    def outer_reduced(outer_index: int, n1: int, n2: int, n3: int, n4: int, n5: int) -> int:
        """The index of an inner array over the outer reduced dimensions."""
        first, rest = outer_index // n1 % n2, outer_index // n1 // n2 // n3
        return (rest // n4 // n5 * n4 + rest % n4) * n2 + first

    @device_function
    def add_run(at: int, first: int, last: int, step: int) -> Any:
        """Adds every `step`-th of both sums of a tile from `first` on; four at a time if they are many, so that
        latencies overlap.
        """
        s, b = FLOAT(0), FLOAT(0)
        one, two = cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
        while MANY and first < last - 3 * step:
            for pair in range(0, 4, 2):
                here = at + int32(first + pair * step) * SUM
                if SCALE_SUM:
                    load_sum(one, here)
                    load_sum(two, here + step * SUM)
                    s += one[0] + two[0]
                if BIAS_SUM:
                    load_sum(one, here + TO_BIAS)
                    load_sum(two, here + (TO_BIAS + step * SUM))
                    b += one[0] + two[0]
            first = int32(first + 4 * step)
        while first < last:
            here = at + int32(first) * SUM
            if SCALE_SUM:
                load_sum(one, here)
                s += one[0]
            if BIAS_SUM:
                load_sum(two, here + TO_BIAS)
                b += two[0]
            first = int32(first + step)
        return s, b

    @device_function
    def add_over_tile(
        scale_sums: Any, bias_sums: Any, partial: int, outer_index: int, group: int, tile_of_row: int, vectors: int,
        inner_channels: int, spatial: int, tile: int, tiles: int, groups: int, lane_bits: int, repeats: int, parts: int,
        row_of_sums: int, n1: int, n2: int, n3: int, n4: int, n5: int,
    ) -> None:  # fmt: skip
        """Adds the sums of every run over the block's threads, `lanes` of them for a run, and writes them to the item's
        partial rows. One sum of all channels takes `row_of_sums` bytes there.
        """
        thread = int32(cuda.threadIdx.x)
        shared = i.shared_memory()
        to_bias = PLACE(row_of_sums)
        partial_row = PLACE(2 * to_bias) if BOTH else to_bias
        some, one = cuda.local.array(VALUES, FLOAT), cuda.local.array(1, FLOAT)
        wait_for_block()  # the previous item is finished
        for j in range(VECTORS):
            to = shared + SUMS_AT + (j * THREADS + thread) * (VALUES * SUM)
            for v in range(VALUES):
                some[v] = scale_sums[j * ADDERS + v]
                if ADDERS > VALUES:
                    some[v] += scale_sums[j * ADDERS + 1]
            if SCALE_SUM:
                store_values(to, some)
            for v in range(VALUES):
                some[v] = bias_sums[j * ADDERS + v]
                if ADDERS > VALUES:
                    some[v] += bias_sums[j * ADDERS + 1]
            if BIAS_SUM:
                store_values(to + TO_BIAS, some)
        wait_for_block()

        whole = tiles == 1  # the tile is a row: it has every channel, `repeats` times
        grains = PLACE(spatial // GRAIN)  # of a run
        first = PLACE(tile_of_row * (tile // GRAIN))  # of the tile
        here = int32(vectors * VALUES)
        lowest = PLACE(divide(first, grains))
        runs = int32(inner_channels) if whole else int32(divide(first + here - 1, grains) - lowest + 1)
        times = int32(repeats) if whole else int32(1)
        lanes = int32(1 << lane_bits)
        lane = int32(thread & (lanes - 1))
        # where a run has fewer grains than lanes, the lanes share its repetitions
        short = grains < lanes
        time_step, grain_step = (lanes, int32(1)) if short else (int32(1), lanes)
        first_time, first_grain = (lane, int32(0)) if short else (int32(0), lane)
        device = int32(thread >> lane_bits)
        warp_first = int32(thread // 32 * 32 >> lane_bits)  # uniform in a warp: its lanes shuffle together
        while warp_first < runs:
            s, b = FLOAT(0), FLOAT(0)
            run = PLACE(lowest + device)
            time = first_time
            while device < runs and time < times:
                start = PLACE((run + PLACE(time) * inner_channels) * grains - first)
                stop = int32(min(PLACE(start + grains), PLACE(here)))
                start = int32(max(start, PLACE(0)) + first_grain)
                more_s, more_b = add_run(shared + SUMS_AT, start, stop, grain_step)
                s += more_s
                b += more_b
                time = int32(time + time_step)
            distance = int32(lanes // 2)
            while distance > 0:
                s += shuffle_xor(s, distance)
                b += shuffle_xor(b, distance)
                distance = int32(distance // 2)
            if device < runs and lane == 0:
                first_tile = divide(run * spatial, tile)
                last_tile = min(int64(tiles - 1), int64(divide(run * spatial + spatial - 1, tile)))
                line, channel, number = int64(0), int64(run), int64(group)
                if not whole:
                    line = int64(divide(run, inner_channels))
                    channel = run - line * inner_channels
                    number = int64(group) * repeats + line
                if HAS_OUTER:
                    channel += int64(outer_channel(outer_index, n1, n2, n3, n4, n5)) * inner_channels
                    number += int64(outer_reduced(outer_index, n1, n2, n3, n4, n5)) * groups * (1 if whole else repeats)
                part = tile_of_row - first_tile
                to_row = row_address(partial, PLACE(number * parts + part), partial_row) + channel * SUM
                if SCALE_SUM:
                    one[0] = s
                    store_sum(to_row, one)
                if BIAS_SUM:
                    one[0] = b
                    store_sum(to_row + to_bias if BOTH else to_row, one)
                while tile_of_row == last_tile and part + 1 < parts:  # a run in fewer tiles than others
                    part += 1
                    to_row += partial_row
                    one[0] = FLOAT(0)
                    if SCALE_SUM:
                        store_sum(to_row, one)
                    if BIAS_SUM:
                        store_sum(to_row + to_bias if BOTH else to_row, one)
            device = int32(device + (THREADS >> lane_bits))
            warp_first = int32(warp_first + (THREADS >> lane_bits))

    return add_over_tile
