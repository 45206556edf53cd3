"""The gradient of a batch norm in one read of memory, for arrays in the order N C H W.

    r = deviation, or 1 / sqrt(deviation + epsilon),  h = X - mean       r: inverse standard deviation of the channel
    bias_sum = sum of D,  scale_sum = r (sum of D h)               over the m elements of a channel
    dX = scale r D                                                 if the statistics are constants
    dX = scale r (D - bias_sum/m - h r scale_sum/m)                if they are those of the elements

An item is a channel or a group of neighbouring channels; the last may be smaller. A cluster of blocks processes one
item at a time, and each block has a part of the images. The last warp of a block issues bulk copies into a ring in
shared memory. The other warps add up the data and exchange their sums with the other blocks.

Copies are of whole units of 16 bytes. If an item's part of an image is not aligned (config.shifted), the first and the
last unit contain elements of neighbouring items; these are ignored (persistent_pass).

The first dX is written in the first pass, and frees each slot. The second needs the sums: the item stays in the ring
until they are known, and a second pass reads it there. Slots that this pass frees are filled for a later item at once:
memory is busy while a block computes, or waits for the others.

The order of all additions depends on the config and the launch alone: results are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import inverse_std, number_access
from gradkern.cuda.device_code.units import bytes_spanned
from gradkern.kernels.channels.persistent_config import UNIT, PersistentConfig
from gradkern.kernels.channels.persistent_pass import persistent_passes


def build(config: PersistentConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument (ARGUMENTS) an int64."""
    GROUP, CLUSTER_SIZE = config.group, config.cluster_size
    COMPUTE_THREADS, CHANNEL_THREADS = config.compute_threads, config.channel_threads
    WARPS, CHANNEL_WARPS, CLUSTER = config.compute_threads // 32, config.channel_threads // 32, config.cluster_size > 1
    SCALE_SUM, BIAS_SUM = "scale_sum" in config.outputs, "bias_sum" in config.outputs
    GRADIENT, CENTRED, SUMS = "dX" in config.outputs, config.centred, config.sums
    PARTS, READS_X, SHIFTED = config.parts, config.parts > 1, config.shifted
    BY_ROWS, VECTOR = config.by_rows, config.vector
    ARRIVALS = 32 if SHIFTED else 1  # at the barrier of a full slot
    PAIR, EXCHANGED, TERMS = 2 * config.itemsize, config.exchanged, CLUSTER_SIZE * CHANNEL_WARPS
    FREE_AT, EXCHANGE_BARRIERS = config.free_barriers_at, config.exchange_barriers_at
    PAIRS_AT, RING_AT = config.pairs_at, config.ring_at

    DOUBLE = config.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    first_pass, second_pass = persistent_passes(config)
    parameter, put_parameter = number_access(config.parameter, config.compute)
    statistic, _ = number_access(config.statistic, config.compute)
    load_pair = i.loader("shared", config.compute, 2)
    store_pair = i.storer("shared", config.compute, 2)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor
    send_pair = i.send_pair_double if DOUBLE else i.send_pair
    inverse = inverse_std(config.compute, config.epsilon)

    @device_function
    def sum_pair_over_warp(pair: Any) -> None:
        """Every lane gets the same sum."""
        distance = int32(16)
        while distance > 0:
            pair[0] += shuffle_xor(pair[0], distance)
            pair[1] += shuffle_xor(pair[1], distance)
            distance = int32(distance // 2)

    @device_function
    def parameters(mean: int, deviation: int, scale: int, channel: int) -> Any:
        """Mean, deviation and scale of a channel."""
        m, r, s = FLOAT(0), FLOAT(0), FLOAT(0)
        if READS_X:
            m = statistic(mean, channel)
        if GRADIENT or READS_X:
            r = statistic(deviation, channel)
        if GRADIENT:
            s = parameter(scale, channel)
        return m, r, s

    @device_function
    def first_unit(address: int) -> int:
        return address & -UNIT if SHIFTED else address

    @device_function
    def fetch(
        slot: int, barrier: int, X: int, D: int, row: int, pitch: int, image: int, count: int, part: int
    ) -> None:  # fmt: skip
        """By one warp: copies an item's part of `count` images of D and X into a slot; `barrier` counts the bytes."""
        lane = int32(cuda.threadIdx.x % 32)
        if SHIFTED:
            each, size = lane, int32(0)
            while each < count:
                size = int32(size + bytes_spanned(D + int64(each) * image, row))
                each = int32(each + 32)
            i.arrive_and_expect(barrier, int32(PARTS * size))
        else:
            if lane == 0:
                i.arrive_and_expect(barrier, PARTS * count * row)
            i.warp_barrier()
        while lane < count:
            ahead = int64(lane) * image
            size = bytes_spanned(D + ahead, row) if SHIFTED else row
            i.bulk_copy(slot + lane * pitch, first_unit(D + ahead), size, barrier)
            if READS_X:
                i.bulk_copy(slot + part + lane * pitch, first_unit(X + ahead), size, barrier)
            lane = int32(lane + 32)

    def kernel(
        D: int, X: int, scale: int, mean: int, deviation: int, dX: int, scale_sum: int, bias_sum: int,
        items: int, channels: int, images: int, batch: int, slots: int, plane: int, plane_bytes: int, pitch: int,
        image: int, elements: int,
    ) -> None:  # fmt: skip
        thread = int32(cuda.threadIdx.x)
        warp, warp_lane = int32(thread // 32), int32(thread % 32)
        own_channel = int32(thread // CHANNEL_THREADS)
        member = int32(thread - own_channel * CHANNEL_THREADS)
        slice_ = int32(cuda.blockIdx.x % CLUSTER_SIZE)
        cluster, clusters = int32(cuda.blockIdx.x // CLUSTER_SIZE), int32(cuda.gridDim.x // CLUSTER_SIZE)
        items, batch, slots, plane, pitch = int32(items), int32(batch), int32(slots), int32(plane), int32(pitch)
        plane_bytes = int32(plane_bytes)
        row = int32(GROUP * plane_bytes)
        first_image = int32(slice_ * images // CLUSTER_SIZE)
        rows = int32(int32((slice_ + 1) * images // CLUSTER_SIZE) - first_image)
        own = int64(first_image) * image
        part = int32(batch * pitch)  # of a slot: D, then X

        shared = i.shared_memory()
        free, exchanged = shared + FREE_AT, shared + EXCHANGE_BARRIERS
        pairs, ring = shared + PAIRS_AT, shared + RING_AT
        if thread == 0:
            each = int32(0)
            while each < slots:
                i.transaction_barrier_init(shared + each * 8, ARRIVALS)
                i.transaction_barrier_init(free + each * 8, WARPS)
                each = int32(each + 1)
            if CLUSTER:
                i.transaction_barrier_init(exchanged, WARPS)
                i.transaction_barrier_init(exchanged + 8, WARPS)
            i.transaction_barrier_fence()
        if CLUSTER:
            i.cluster_barrier()
        else:
            wait_for_block()

        item, slot = cluster, int32(0)
        if warp == WARPS:
            parity = int32(1)  # initially every slot is free
            while item < items:
                own_row = row
                if GROUP > 1:  # the last item may have fewer channels
                    own_row = int32(min(int64(GROUP), channels - int64(item) * GROUP) * plane_bytes)
                done = int32(0)
                while done < rows:
                    at = own + int64(item) * row + int64(done) * image
                    i.wait(free + slot * 8, parity)
                    fetch(ring + slot * (PARTS * part), shared + slot * 8, X + at, D + at, own_row, pitch, image,
                          int32(min(batch, rows - done)), part)  # fmt: skip
                    done = int32(done + batch)
                    slot = int32(slot + 1)
                    if slot == slots:
                        slot, parity = int32(0), int32(parity ^ 1)
                item = int32(item + clusters)
        else:
            pair, more = cuda.local.array(2, FLOAT), cuda.local.array(2, FLOAT)
            d_sum, dh_sum = cuda.local.array(2, FLOAT), cuda.local.array(2, FLOAT)
            share = FLOAT(1) / FLOAT(elements)

            first = int32(own_channel * plane_bytes)
            down, first_down = i.quotient(int32(CHANNEL_THREADS), plane), i.quotient(member, plane)
            across, first_across = int32(CHANNEL_THREADS - down * plane), int32(member - first_down * plane)
            at_step, out_step, at_carry, out_carry = int32(down * pitch), int64(down) * image, pitch, image
            first_at, first_out = int32(first_down * pitch), int64(first_down) * image
            if not BY_ROWS:
                at_step, out_step = int32(at_step + across * VECTOR), out_step + across * VECTOR
                at_carry, out_carry = int32(pitch - plane_bytes), image - plane_bytes
                first_at = int32(first_at + first + first_across * VECTOR)
                first_out += first + first_across * VECTOR
            walk = (at_step, across, out_step, at_carry, out_carry, member, first, plane, plane_bytes, pitch, image)

            next_m, next_r, next_scale = FLOAT(0), FLOAT(0), FLOAT(0)
            if item < items and int64(item) * GROUP + own_channel < channels:
                next_m, next_r, next_scale = parameters(mean, deviation, scale, int64(item) * GROUP + own_channel)
            parity, buffer, exchange_parity = int32(0), int32(0), int32(0)
            while item < items:
                channel = int64(item) * GROUP + own_channel
                is_own = GROUP == 1 or channel < channels  # the last item may have fewer
                m, r = next_m, inverse(next_r)
                gain = next_scale * r
                after = channel + int64(clusters) * GROUP
                if after < channels:
                    next_m, next_r, next_scale = parameters(mean, deviation, scale, after)

                # first pass: the sums of D and of D (X - mean), and dX where it does not need them
                d_sum[0] = d_sum[1] = dh_sum[0] = dh_sum[1] = FLOAT(0)
                first_slot, done = slot, int32(0)
                at, place, v = first_at, first_across, member
                item_out = dX + int64(item) * row + own
                out = item_out + first_out
                while done < rows:
                    i.wait(shared + slot * 8, parity)
                    count = int32(min(batch, rows - done)) if is_own else int32(0)
                    at, place, v, out = first_pass(
                        ring + slot * (PARTS * part), item_out + int64(done) * image, part, count,
                        at, place, v, out, walk, m, gain, d_sum, dh_sum,
                    )  # fmt: skip
                    if not CENTRED:
                        i.warp_barrier()
                        if warp_lane == 0:
                            i.arrive_and_expect(free + slot * 8, 0)
                    done = int32(done + batch)
                    slot = int32(slot + 1)
                    if slot == slots:
                        slot, parity = int32(0), int32(parity ^ 1)
                if not SUMS:
                    item = int32(item + clusters)
                    continue

                # the channel's sums, over all its threads in the cluster
                pair[0], pair[1] = d_sum[0] + d_sum[1], dh_sum[0] + dh_sum[1]
                sum_pair_over_warp(pair)
                to = pairs + buffer * (EXCHANGED * PAIR)
                if CLUSTER:
                    arrived = exchanged + buffer * 8
                    if warp_lane == 0:
                        i.arrive_and_expect(arrived, CLUSTER_SIZE * PAIR)
                    if warp_lane < CLUSTER_SIZE:
                        peer = i.peer_address(to + (slice_ * WARPS + warp) * PAIR, warp_lane)
                        send_pair(peer, pair[0], pair[1], i.peer_address(arrived, warp_lane))
                    i.wait_cluster(arrived, exchange_parity)
                    exchange_parity = int32(exchange_parity ^ buffer)
                else:
                    if warp_lane == 0:
                        store_pair(to + warp * PAIR, pair)
                    i.named_barrier(1, COMPUTE_THREADS)
                buffer = int32(1 - buffer)  # two buffers: one exchange an item is enough
                pair[0] = pair[1] = FLOAT(0)
                for term in range(warp_lane, TERMS, 32):
                    of = term // CHANNEL_WARPS * WARPS + own_channel * CHANNEL_WARPS + term % CHANNEL_WARPS
                    load_pair(more, to + of * PAIR)
                    pair[0] += more[0]
                    pair[1] += more[1]
                sum_pair_over_warp(pair)
                if is_own and slice_ == 0 and member == 0:
                    if SCALE_SUM:
                        put_parameter(scale_sum, channel, pair[1] * r)
                    if BIAS_SUM:
                        put_parameter(bias_sum, channel, pair[0])

                # second pass: dX, and every slot is freed
                if CENTRED:
                    shift, slope = pair[0] * share, pair[1] * share * r * r
                    back, done = first_slot, int32(0)
                    at, place, v = first_at, first_across, member
                    out = item_out + first_out
                    while done < rows:
                        count = int32(min(batch, rows - done)) if is_own else int32(0)
                        at, place, v, out = second_pass(
                            ring + back * (PARTS * part), item_out + int64(done) * image, part, count,
                            at, place, v, out, walk, m, gain, shift, slope,
                        )  # fmt: skip
                        i.warp_barrier()
                        if warp_lane == 0:
                            i.arrive_and_expect(free + back * 8, 0)
                        done = int32(done + batch)
                        back = int32(back + 1)
                        if back == slots:
                            back = int32(0)
                item = int32(item + clusters)
        if CLUSTER:
            i.cluster_barrier()  # no block leaves while another may still send to it

    return kernel
