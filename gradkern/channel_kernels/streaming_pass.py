"""One pass of the streaming kernel: what every block does to all of its items, one after another.

A thread copies its own vectors some rows ahead into its own places in shared memory (cp.async), so no thread ever waits
for another but at the end of an item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.channel_kernels.streaming_form import StreamingForm
from gradkern.channel_kernels.streaming_tile import divider, kept_of, tile_sums
from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function

__all__ = ["one_pass"]


def one_pass(
    form: StreamingForm, inverse: Callable[..., Any], times_inverse: Callable[..., Any]
) -> Callable[..., None]:
    """The device function run_pass(...), of all arguments of the kernel but the counter and the partial rows' number,
    and of 1/m in place of what tells it.

    The last argument is where in the ring the pass before has ended; it returns where it has itself.
    inverse(deviation): a channel's inverse standard deviation; times_inverse(part, channel, value, deviation): a
    finished sum from an added-up one.
    """
    THREADS, WIDTH, VECTORS, STAGES = form.threads, form.width, form.vectors, form.stages
    SPLIT, COLUMNS, TAIL, NESTED, DIRECT = form.split, form.columns, form.tail, form.nested, form.direct
    LONG, RING, BACKWARD, FOUND = form.long, form.ring, form.backward, form.reuses_ring
    GRADIENT, CENTRED = "dX" in form.outputs, form.centred
    SCALE_SUM, BIAS_SUM, SUMS = form.sums_scale, form.sums_bias, form.sums
    READS_X = SCALE_SUM or CENTRED
    VALUES, ADDERS = form.values, form.adders
    ELEMENTS, PER_THREAD, SUMS_PER_THREAD = VECTORS * WIDTH, VECTORS * VALUES, VECTORS * ADDERS
    PARAMETER, STATISTIC = ITEMSIZE[form.parameter], ITEMSIZE[form.statistic]
    ITEM, SUM = form.data_itemsize, form.itemsize
    VECTOR = WIDTH * ITEM
    NEXT = THREADS * VECTOR  # from one vector of a thread to the next
    STAGE, D_SLOT, SLOTS = form.stage_bytes, VECTORS * NEXT, form.slots
    RING_BYTES = SLOTS * STAGE

    FLOAT = float64 if form.compute == "float64" else float32
    PLACE = int64 if LONG else int32
    memory = "shared" if RING else "global"
    load_vector = i.loader(memory, form.data, WIDTH)
    load_element = i.loader("global", form.data, 1)
    store_vector = i.storer("global", form.data, WIDTH, form.native_bfloat16)
    store_element = i.storer("global", form.data, 1, form.native_bfloat16)
    PARAMETERS = WIDTH if COLUMNS else 1  # loaded at once
    load_parameters = i.loader("global", form.parameter, PARAMETERS)
    load_statistics = i.loader("global", form.statistic, PARAMETERS)
    load_totals = i.loader("global", form.compute, PARAMETERS)
    store_result = i.storer("global", form.parameter, 1, form.native_bfloat16)
    copy = i.async_copy(VECTOR) if RING else None
    wait_for_copies = i.wait_for_copies(STAGES - 1)
    divide = divider(form)
    add_over_tile = tile_sums(form) if SUMS and not DIRECT else None

    @device_function
    def ahead_of_all(items: int, blocks: int) -> int:
        """What `next_item` makes a block's first item of."""
        own = int32(cuda.blockIdx.x)
        if BACKWARD:
            return int32(own + (max(items - own, int32(0)) + blocks - 1) // blocks * blocks)
        return int32(own - blocks)

    @device_function
    def next_item(item: int, blocks: int) -> int:
        return int32(item - blocks) if BACKWARD else int32(item + blocks)

    @device_function
    def next_slot(slot: int) -> int:
        """Of the ring: each row of the way back is where the way there had it."""
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
        """Of what next_item returned: whether the block has it."""
        return item >= 0 if BACKWARD else item < items

    @device_function
    def begin(
        item: int, count: int, row: int, tile: int, tiles: int, rows_each: int, rows_over: int, groups: int
    ) -> Any:  # fmt: skip
        """Of an item: where this thread's first vector lies in the row that is taken first, and where its slab ends,
        in bytes; rows; vectors; and its tile, group and slab.
        """
        line = i.quotient(item, tiles)
        slab = i.quotient(line, groups) if NESTED else int32(0)
        group, tile_of_row = int32(line - slab * groups), int32(item - line * tiles)
        first = int64(group) * row + int64(tile_of_row) * tile + int32(cuda.threadIdx.x) * WIDTH
        vectors = min(tile, row - PLACE(tile_of_row) * tile) // WIDTH
        from_slab = int64(slab) * count
        left = rows_each + (1 if group < rows_over else 0)
        at, end = (from_slab + first) * ITEM, (from_slab + count) * ITEM
        if BACKWARD:
            at += int64(left - 1) * groups * row * ITEM
        return at, end, int32(left), int32(vectors), tile_of_row, group, slab

    @device_function
    def fetch(slot: int, X: int, D: int, at: int, vectors: int, end: int) -> None:
        """One row of an item, from `at` on, into the ring: every thread its own vectors, as nobody else reads them."""
        thread = int32(cuda.threadIdx.x)
        for j in range(VECTORS):
            here = at + j * NEXT
            if thread + j * THREADS < vectors and here < end and not (TAIL and here + VECTOR > end):
                to = slot + thread * VECTOR + j * NEXT
                if READS_X:
                    copy(to, X + here)
                copy(to + D_SLOT, D + here)

    @device_function
    def load_tail(values: Any, address: int, valid: int) -> None:
        """The elements of the vector in which the array ends."""
        one = cuda.local.array(1, FLOAT)
        for e in range(WIDTH):
            values[e] = FLOAT(0)
            if e < valid:
                load_element(one, address + e * ITEM)
                values[e] = one[0]

    @device_function
    def load(x: Any, d: Any, j: int, X: int, D: int, here: int, end: int, taken: int) -> None:
        """This thread's vector j of a row, from the ring or from memory at `here`."""
        vector = cuda.local.array(WIDTH, FLOAT)
        if TAIL and here + VECTOR > end:
            if READS_X:
                load_tail(vector, X + here, (end - here) // ITEM)
                for e in range(WIDTH):
                    x[j * WIDTH + e] = vector[e]
            load_tail(vector, D + here, (end - here) // ITEM)
        else:
            from_ring = taken + int32(cuda.threadIdx.x) * VECTOR + j * NEXT
            if READS_X:
                load_vector(vector, from_ring if RING else X + here)
                for e in range(WIDTH):
                    x[j * WIDTH + e] = vector[e]
            load_vector(vector, from_ring + D_SLOT if RING else D + here)
        for e in range(WIDTH):
            d[j * WIDTH + e] = vector[e]

    @device_function
    def run_pass(
        D: int, X: int, scale: int, mean: int, deviation: int, dX: int, scale_sum: int, bias_sum: int,
        scale_total: int, bias_total: int, partial: int,
        count: int, inner: int, length: int, row: int, tile: int, tiles: int, rows_each: int, rows_over: int,
        groups: int, items: int, lane_bits: int, repeats: int, parts: int, share: Any, row_of_sums: int,
        nest: tuple[int, int, int, int, int], ended: int,
    ) -> int:  # fmt: skip
        n1, n2, n3, n4, n5 = nest
        thread, blocks = int32(cuda.threadIdx.x), int32(cuda.gridDim.x)
        inner, length, row, tile, tiles = PLACE(inner), PLACE(length), PLACE(row), PLACE(tile), int32(tiles)
        rows_each, rows_over = int32(rows_each), int32(rows_over)
        groups, items, lane_bits = int32(groups), int32(items), int32(lane_bits)
        step = int64(groups) * row * (-ITEM if BACKWARD else ITEM)
        shared = i.shared_memory()

        x, d = cuda.local.array(ELEMENTS, FLOAT), cuda.local.array(ELEMENTS, FLOAT)
        vector, one = cuda.local.array(WIDTH, FLOAT), cuda.local.array(1, FLOAT)
        values, scales = cuda.local.array(PARAMETERS, FLOAT), cuda.local.array(PARAMETERS, FLOAT)
        means, gains = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        shifts, slopes = cuda.local.array(PER_THREAD, FLOAT), cuda.local.array(PER_THREAD, FLOAT)
        scale_sums, bias_sums = cuda.local.array(SUMS_PER_THREAD, FLOAT), cuda.local.array(SUMS_PER_THREAD, FLOAT)

        # two loops over the same items: the one asks for rows, the other takes them STAGES - 1 rows later
        item, left, vectors, at, end = ahead_of_all(items, blocks), int32(0), int32(0), int64(0), int64(0)
        tile_of_row, group, slab, channels_at = int32(0), int32(0), int32(0), int64(0)
        taken = next_slot(ended) if BACKWARD else int32(ended)
        ahead, ahead_left, ahead_vectors = item, int32(0), int32(0)
        ahead_at, ahead_end, asked, slot, found = int64(0), int64(0), int32(0), taken, int32(0)
        while True:
            if RING:
                if ahead_left == 0 and is_item(ahead, items):
                    ahead = next_item(ahead, blocks)
                    if is_item(ahead, items):
                        ahead_at, ahead_end, ahead_left, ahead_vectors, _, _, _ = begin(
                            ahead, count, row, tile, tiles, rows_each, rows_over, groups
                        )
                if ahead_left > 0:
                    if FOUND and found < SLOTS:  # as the pass before has left it
                        found = int32(found + 1)
                    else:
                        fetch(shared + slot, X, D, ahead_at, ahead_vectors, ahead_end)
                    ahead_left = int32(ahead_left - 1)
                    ahead_at += step
                i.commit_copies()
                slot = next_slot(slot)
                if asked < STAGES - 1:
                    asked = int32(asked + 1)
                    continue

            if left == 0:
                item = next_item(item, blocks)
                if not is_item(item, items):
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
                        if READS_X:
                            load_statistics(values, mean + (channels_at + channel) * STATISTIC)
                            for p in range(PARAMETERS):
                                means[j * VALUES + e + p] = values[p]
                        if GRADIENT:
                            load_statistics(values, deviation + (channels_at + channel) * STATISTIC)
                            load_parameters(scales, scale + (channels_at + channel) * PARAMETER)
                            for p in range(PARAMETERS):
                                gains[j * VALUES + e + p] = scales[p] * inverse(values[p])
                                if CENTRED:
                                    slopes[j * VALUES + e + p] = inverse(values[p]) * share
                        if CENTRED:
                            load_totals(values, scale_total + (channels_at + channel) * SUM)
                            for p in range(PARAMETERS):
                                slopes[j * VALUES + e + p] *= values[p]
                            load_totals(values, bias_total + (channels_at + channel) * SUM)
                            for p in range(PARAMETERS):
                                shifts[j * VALUES + e + p] = values[p] * share
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
                        if CENTRED:
                            vector[e] = gains[n] * (d[xd] - shifts[n] - (x[xd] - means[n]) * slopes[n])
                        elif GRADIENT:
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
            taken = next_slot(taken)

            if SUMS and left == 0:
                if DIRECT:
                    for j in range(VECTORS):
                        place = int64(tile_of_row) * tile + (j * THREADS + thread) * WIDTH
                        for e in range(WIDTH):
                            if thread + j * THREADS < vectors and place + e < count:
                                channel = place + e
                                if SCALE_SUM:
                                    value = times_inverse(0, channel, scale_sums[j * ADDERS + e % ADDERS], deviation)
                                    one[0] = value
                                    store_result(scale_sum + channel * PARAMETER, one)
                                if BIAS_SUM:
                                    one[0] = bias_sums[j * ADDERS + e % ADDERS]
                                    store_result(bias_sum + channel * PARAMETER, one)
                else:
                    add_over_tile(scale_sums, bias_sums, partial, slab, group, tile_of_row, vectors, inner, length,
                                  tile, tiles, groups, lane_bits, repeats, parts, row_of_sums,
                                  n1, n2, n3, n4, n5)  # fmt: skip
        return taken

    return run_pass
