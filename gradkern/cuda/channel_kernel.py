"""The walk of gradkern/cuda/channels as a kernel: sums over all a channel has, and the gradient that needs no sums.

    r  = spread, or 1 / sqrt(spread + epsilon)       inverse standard deviation of the channel
    bias_sum = sum of D,  scale_sum = sum of D (X - mean) r
    dX = D scale r                                   where the statistics are constants

One pass: D and X are read once, each only where an output asks for it, and dX is written once. r is constant in a
channel, so it multiplies the finished sum. A thread copies its own vectors some rows ahead into its own places in
shared memory (cp.async), so no thread ever waits for another but at the end of an item.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda import intrinsics as i
from gradkern.cuda.channels import ChannelForm
from gradkern.cuda.column_sums import column_sums
from gradkern.cuda.columns import ITEMSIZE

__all__ = ["build"]


def build(form: ChannelForm) -> Callable[..., None]:
    """The kernel for `form`, as a function that Numba compiles with every argument (channels.ARGUMENTS) an int64."""
    THREADS, WIDTH, VECTORS, STAGES = form.threads, form.width, form.vectors, form.stages
    SPLIT, COLUMNS, TAIL, NESTED, DIRECT = form.split, form.columns, form.tail, form.nested, form.direct
    LONG, RING = form.long, form.ring
    GRADIENT = "dX" in form.outputs
    SCALE_SUM, BIAS_SUM = "scale_sum" in form.outputs, "bias_sum" in form.outputs
    SUMS, VARIANCE = form.sums, form.epsilon is not None
    EPSILON = form.epsilon or 0.0
    VALUES = form.values  # parameters of one vector
    ADDERS = WIDTH if SPLIT else min(2, WIDTH)  # of one vector and sum: two, so that additions need not wait
    ELEMENTS, PER_THREAD, SUMS_PER_THREAD = VECTORS * WIDTH, VECTORS * VALUES, VECTORS * ADDERS
    GRAIN = 1 if SPLIT else WIDTH  # elements that are added up together
    PARAMETER, STATISTIC = ITEMSIZE[form.parameter], ITEMSIZE[form.statistic]
    ITEM, SUM = form.data_itemsize, form.itemsize
    VECTOR = WIDTH * ITEM
    NEXT = THREADS * VECTOR  # from one vector of a thread to the next
    STAGE, D_SLOT, SUMS_AT, SUM_BYTES = form.stage_bytes, VECTORS * NEXT, form.sums_at, form.sum_bytes
    BIAS_AT = SUMS_AT + (SUM_BYTES if SCALE_SUM else 0)
    columns = form.column_sums
    PADDED = columns.padded_columns
    ROW = SUMS * PADDED * SUM
    BIAS_ROW = PADDED * SUM if SCALE_SUM else 0

    DOUBLE = form.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    PLACE = int64 if LONG else int32
    memory = "shared" if RING else "global"
    load_vector = i.loader(memory, form.data, WIDTH)
    load_element = i.loader("global", form.data, 1)
    store_vector = i.storer("global", form.data, WIDTH, form.native_bfloat16)
    store_element = i.storer("global", form.data, 1, form.native_bfloat16)
    PARAMETERS = WIDTH if COLUMNS else 1  # loaded at once
    load_parameters = i.loader("global", form.parameter, PARAMETERS)
    load_statistics = i.loader("global", form.statistic, PARAMETERS)
    load_statistic = i.loader("global", form.statistic, 1)
    store_result = i.storer("global", form.parameter, 1, form.native_bfloat16)
    store_values = i.storer("shared", form.compute, VALUES)
    load_sum = i.loader("shared", form.compute, 1)
    store_sum = i.storer("global", form.compute, 1)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor
    copy = i.async_copy(VECTOR) if RING else None
    wait_for_copies = i.wait_for_copies(STAGES - 1)
    inline = cuda.jit(device=True, inline="always")

    @inline
    def inverse_root(value: Any) -> Any:
        if DOUBLE:
            return FLOAT(1) / FLOAT(math.sqrt(value))
        guess = i.inverse_root_approximate(value)  # and one step of Newton's, which is nothing for 0 and infinity
        better = guess * (FLOAT(1.5) - FLOAT(0.5) * value * guess * guess)
        return better if better == better else guess

    @inline
    def inverse(spread: Any) -> Any:
        """The inverse standard deviation."""
        if VARIANCE:
            return inverse_root(spread + FLOAT(EPSILON))
        return spread

    @inline
    def times_inverse(part: int, channel: int, value: Any, spread: int) -> Any:
        """A finished sum: that of scale, which is the first if it is wanted, still lacks r."""
        one = cuda.local.array(1, FLOAT)
        if SCALE_SUM and part == 0:
            load_statistic(one, spread + int64(channel) * STATISTIC)
            value = value * inverse(one[0])
        return value

    _, add_over_grid = column_sums(columns, times_inverse)

    @inline
    def kept_of(slab: int, n1: int, n2: int, n3: int, n4: int, n5: int) -> int:
        """A slab's index over the kept axes around it."""
        inner, rest = slab % n1, slab // n1 // n2
        return ((rest // n3 // n4) % n5 * n3 + rest % n3) * n1 + inner

    @inline
    def reduced_of(slab: int, n1: int, n2: int, n3: int, n4: int, n5: int) -> int:
        """A slab's index over the reduced axes around it."""
        inner, rest = slab // n1 % n2, slab // n1 // n2 // n3
        return (rest // n4 // n5 * n4 + rest % n4) * n2 + inner

    @inline
    def divide(value: int, divisor: int) -> int:
        return value // divisor if LONG else i.quotient(int32(value), int32(divisor))

    @inline
    def begin(
        item: int, count: int, row: int, tile: int, tiles: int, rows_each: int, rows_over: int, groups: int
    ) -> Any:  # fmt: skip
        """Of an item: where this thread's first vector lies and where its slab ends, in bytes; rows; vectors; and
        its tile, group and slab.
        """
        line = i.quotient(item, tiles)
        slab = i.quotient(line, groups) if NESTED else int32(0)
        group, tile_of_row = int32(line - slab * groups), int32(item - line * tiles)
        first = int64(group) * row + int64(tile_of_row) * tile + int32(cuda.threadIdx.x) * WIDTH
        vectors = min(tile, row - PLACE(tile_of_row) * tile) // WIDTH
        from_slab = int64(slab) * count
        left = rows_each + (1 if group < rows_over else 0)
        at, end = (from_slab + first) * ITEM, (from_slab + count) * ITEM
        return at, end, int32(left), int32(vectors), tile_of_row, group, slab

    @inline
    def fetch(slot: int, X: int, D: int, at: int, vectors: int, end: int) -> None:
        """One row of an item, from `at` on, into the ring: every thread its own vectors, as nobody else reads them."""
        thread = int32(cuda.threadIdx.x)
        for j in range(VECTORS):
            here = at + j * NEXT
            if thread + j * THREADS < vectors and here < end and not (TAIL and here + VECTOR > end):
                to = slot + thread * VECTOR + j * NEXT
                if SCALE_SUM:
                    copy(to, X + here)
                copy(to + D_SLOT, D + here)

    @inline
    def load_tail(values: Any, address: int, valid: int) -> None:
        """The elements of the vector in which the array ends."""
        one = cuda.local.array(1, FLOAT)
        for e in range(WIDTH):
            values[e] = FLOAT(0)
            if e < valid:
                load_element(one, address + e * ITEM)
                values[e] = one[0]

    @inline
    def load(x: Any, d: Any, j: int, X: int, D: int, here: int, end: int, taken: int) -> None:
        """This thread's vector j of a row, from the ring or from memory at `here`."""
        vector = cuda.local.array(WIDTH, FLOAT)
        if TAIL and here + VECTOR > end:
            if SCALE_SUM:
                load_tail(vector, X + here, (end - here) // ITEM)
                for e in range(WIDTH):
                    x[j * WIDTH + e] = vector[e]
            load_tail(vector, D + here, (end - here) // ITEM)
        else:
            from_ring = taken + int32(cuda.threadIdx.x) * VECTOR + j * NEXT
            if SCALE_SUM:
                load_vector(vector, from_ring if RING else X + here)
                for e in range(WIDTH):
                    x[j * WIDTH + e] = vector[e]
            load_vector(vector, from_ring + D_SLOT if RING else D + here)
        for e in range(WIDTH):
            d[j * WIDTH + e] = vector[e]

    @inline
    def add_run(at: int, first: int, last: int, step: int) -> Any:
        """Every `step`-th of the sums of a tile from `first` on."""
        one = cuda.local.array(1, FLOAT)
        total = FLOAT(0)
        while first < last:
            load_sum(one, at + int32(first) * SUM)
            total += one[0]
            first = int32(first + step)
        return total

    @inline
    def add_over_tile(
        scale_sums: Any, bias_sums: Any, partial: int, slab: int, group: int, tile_of_row: int, vectors: int,
        inner: int, length: int, tile: int, tiles: int, groups: int, lane_bits: int, repeats: int, parts: int,
        n1: int, n2: int, n3: int, n4: int, n5: int,
    ) -> None:  # fmt: skip
        """Every run's sums over the block's threads, `lanes` of them for a run, into the item's partial rows."""
        thread = int32(cuda.threadIdx.x)
        shared = i.shared_memory()
        some, one = cuda.local.array(VALUES, FLOAT), cuda.local.array(1, FLOAT)
        cuda.syncthreads()  # the item before has been added up
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
                store_values(to + (BIAS_AT - SUMS_AT), some)
        cuda.syncthreads()

        whole = tiles == 1  # the row is the tile: it has every channel, `repeats` times
        grains = PLACE(length // GRAIN)  # of a run
        first = PLACE(tile_of_row * (tile // GRAIN))  # of the tile's
        here = int32(vectors * VALUES)
        lowest = PLACE(divide(first, grains))
        runs = int32(inner) if whole else int32(divide(first + here - 1, grains) - lowest + 1)
        times = int32(repeats) if whole else int32(1)
        lanes = int32(1 << lane_bits)
        lane = int32(thread & (lanes - 1))
        # where a run has fewer grains than lanes, the lanes share out its repetitions
        short = grains < lanes
        time_step, grain_step = (lanes, int32(1)) if short else (int32(1), lanes)
        first_time, first_grain = (lane, int32(0)) if short else (int32(0), lane)
        which = int32(thread >> lane_bits)
        warp_first = int32(thread // 32 * 32 >> lane_bits)  # the same for all lanes of a warp: they shuffle together
        while warp_first < runs:
            s, b = FLOAT(0), FLOAT(0)
            run = PLACE(lowest + which)
            time = first_time
            while which < runs and time < times:
                start = PLACE((run + PLACE(time) * inner) * grains - first)
                stop = int32(min(PLACE(start + grains), PLACE(here)))
                start = int32(max(start, PLACE(0)) + first_grain)
                if SCALE_SUM:
                    s += add_run(shared + SUMS_AT, start, stop, grain_step)
                if BIAS_SUM:
                    b += add_run(shared + BIAS_AT, start, stop, grain_step)
                time = int32(time + time_step)
            distance = int32(lanes // 2)
            while distance > 0:
                s += shuffle_xor(s, distance)
                b += shuffle_xor(b, distance)
                distance = int32(distance // 2)
            if which < runs and lane == 0:
                first_tile = divide(run * length, tile)
                last_tile = min(int64(tiles - 1), int64(divide(run * length + length - 1, tile)))
                line, channel, number = int64(0), int64(run), int64(group)
                if not whole:
                    line = int64(divide(run, inner))
                    channel = run - line * inner
                    number = int64(group) * repeats + line
                if NESTED:
                    channel += int64(kept_of(slab, n1, n2, n3, n4, n5)) * inner
                    number += int64(reduced_of(slab, n1, n2, n3, n4, n5)) * groups * (1 if whole else repeats)
                part = tile_of_row - first_tile
                to_row = partial + (number * parts + part) * ROW + channel * SUM
                if SCALE_SUM:
                    one[0] = s
                    store_sum(to_row, one)
                if BIAS_SUM:
                    one[0] = b
                    store_sum(to_row + BIAS_ROW, one)
                while tile_of_row == last_tile and part + 1 < parts:  # a run on fewer tiles than others
                    part += 1
                    to_row += ROW
                    one[0] = FLOAT(0)
                    if SCALE_SUM:
                        store_sum(to_row, one)
                    if BIAS_SUM:
                        store_sum(to_row + BIAS_ROW, one)
            which = int32(which + (THREADS >> lane_bits))
            warp_first = int32(warp_first + (THREADS >> lane_bits))

    def kernel(
        D: int, X: int, scale: int, mean: int, spread: int, dX: int, scale_sum: int, bias_sum: int,
        partial: int, counter: int, count: int, inner: int, length: int, row: int, tile: int, tiles: int,
        rows_each: int, rows_over: int, groups: int, items: int, lane_bits: int, repeats: int, parts: int,
        partial_rows: int,
        n1: int, n2: int, n3: int, n4: int, n5: int,
    ) -> None:  # fmt: skip
        thread, blocks = int32(cuda.threadIdx.x), int32(cuda.gridDim.x)
        inner, length, row, tile, tiles = PLACE(inner), PLACE(length), PLACE(row), PLACE(tile), int32(tiles)
        rows_each, rows_over = int32(rows_each), int32(rows_over)
        groups, items, lane_bits = int32(groups), int32(items), int32(lane_bits)
        step = int64(groups) * row * ITEM
        shared = i.shared_memory()

        x, d = cuda.local.array(ELEMENTS, FLOAT), cuda.local.array(ELEMENTS, FLOAT)
        vector, one = cuda.local.array(WIDTH, FLOAT), cuda.local.array(1, FLOAT)
        values, scales = cuda.local.array(PARAMETERS, FLOAT), cuda.local.array(PARAMETERS, FLOAT)
        means, gains = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        scale_sums, bias_sums = cuda.local.array(SUMS_PER_THREAD, FLOAT), cuda.local.array(SUMS_PER_THREAD, FLOAT)

        # two walks over the same items: the one asks for rows, the other takes them STAGES - 1 rows later
        item, left, vectors, at, end = int32(cuda.blockIdx.x - blocks), int32(0), int32(0), int64(0), int64(0)
        tile_of_row, group, slab, channels_at, taken = int32(0), int32(0), int32(0), int64(0), int32(0)
        ahead, ahead_left, ahead_vectors = item, int32(0), int32(0)
        ahead_at, ahead_end, asked, slot = int64(0), int64(0), int32(0), int32(0)
        while True:
            if RING:
                if ahead_left == 0 and ahead < items:
                    ahead = int32(ahead + blocks)
                    if ahead < items:
                        ahead_at, ahead_end, ahead_left, ahead_vectors, _, _, _ = begin(
                            ahead, count, row, tile, tiles, rows_each, rows_over, groups
                        )
                if ahead_left > 0:
                    fetch(shared + slot, X, D, ahead_at, ahead_vectors, ahead_end)
                    ahead_left = int32(ahead_left - 1)
                    ahead_at += step
                i.commit_copies()
                slot = int32(slot + STAGE)
                if slot == STAGES * STAGE:
                    slot = int32(0)
                if asked < STAGES - 1:
                    asked = int32(asked + 1)
                    continue

            if left == 0:
                item = int32(item + blocks)
                if item >= items:
                    break
                at, end, left, vectors, tile_of_row, group, slab = begin(
                    item, count, row, tile, tiles, rows_each, rows_over, groups
                )
                channels_at = int64(kept_of(slab, n1, n2, n3, n4, n5)) * inner if NESTED else int64(0)
                for n in range(SUMS_PER_THREAD):
                    scale_sums[n] = FLOAT(0)
                    bias_sums[n] = FLOAT(0)
                for j in range(VECTORS):
                    place = PLACE(PLACE(tile_of_row) * tile + (j * THREADS + thread) * WIDTH)
                    run = PLACE(divide(place, length))
                    into, channel = PLACE(place - run * length), PLACE(run - divide(run, inner) * inner)
                    for e in range(0, VALUES, PARAMETERS):
                        if SCALE_SUM:
                            load_statistics(values, mean + (channels_at + channel) * STATISTIC)
                            for p in range(PARAMETERS):
                                means[j * VALUES + e + p] = values[p]
                        if GRADIENT:
                            load_statistics(values, spread + (channels_at + channel) * STATISTIC)
                            load_parameters(scales, scale + (channels_at + channel) * PARAMETER)
                            for p in range(PARAMETERS):
                                gains[j * VALUES + e + p] = scales[p] * inverse(values[p])
                        into = PLACE(into + 1)
                        if into == length:
                            into, channel = PLACE(0), PLACE(channel + 1)
                            if channel == inner:
                                channel = PLACE(0)

            if RING:
                wait_for_copies()
            if not RING:  # all loads first, so that their latencies overlap
                for j in range(VECTORS):
                    here = at + j * NEXT
                    if thread + j * THREADS < vectors and here < end:
                        load(x, d, j, X, D, here, end, shared + taken)
            for j in range(VECTORS):
                here = at + j * NEXT
                if thread + j * THREADS < vectors and here < end:
                    if RING:
                        load(x, d, j, X, D, here, end, shared + taken)
                    for e in range(WIDTH):
                        n, s, xd = j * VALUES + (e if SPLIT else 0), j * ADDERS + e % ADDERS, j * WIDTH + e
                        if not TAIL or here + e * ITEM < end:
                            if SCALE_SUM:
                                scale_sums[s] += d[xd] * (x[xd] - means[n])
                            if BIAS_SUM:
                                bias_sums[s] += d[xd]
                        if GRADIENT:
                            vector[e] = d[xd] * gains[n]
                    if GRADIENT:
                        if TAIL and here + VECTOR > end:
                            for e in range(WIDTH):
                                if here + e * ITEM < end:
                                    one[0] = vector[e]
                                    store_element(dX + here + e * ITEM, one)
                        else:
                            store_vector(dX + here, vector)
            at += step
            left = int32(left - 1)
            taken = int32(taken + STAGE)
            if taken == STAGES * STAGE:
                taken = int32(0)

            if SUMS and left == 0:
                if DIRECT:
                    for j in range(VECTORS):
                        place = int64(tile_of_row) * tile + (j * THREADS + thread) * WIDTH
                        for e in range(WIDTH):
                            if thread + j * THREADS < vectors and place + e < count:
                                channel = place + e
                                if SCALE_SUM:
                                    value = times_inverse(0, channel, scale_sums[j * ADDERS + e % ADDERS], spread)
                                    one[0] = value
                                    store_result(scale_sum + channel * PARAMETER, one)
                                if BIAS_SUM:
                                    one[0] = bias_sums[j * ADDERS + e % ADDERS]
                                    store_result(bias_sum + channel * PARAMETER, one)
                else:
                    add_over_tile(scale_sums, bias_sums, partial, slab, group, tile_of_row, vectors, inner, length,
                                  tile, tiles, groups, lane_bits, repeats, parts, n1, n2, n3, n4, n5)  # fmt: skip

        if SUMS and not DIRECT:
            first, second = (scale_sum, bias_sum) if SCALE_SUM else (bias_sum, bias_sum)
            add_over_grid(partial, counter, spread, first, second, partial_rows, partial_rows)

    return kernel
