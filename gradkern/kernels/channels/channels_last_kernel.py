"""The gradient of a batch norm in one read of memory, for arrays in the order N H W C: rows of all channels.

    r = deviation,  h = X - mean                      r: inverse standard deviation of the channel
    bias_sum = sum of D,  scale_sum = r (sum of D h)  over the m rows
    dX = scale r (D - bias_sum/m - h r scale_sum/m)

With an activation, D is the gradient of its result, multiplied by its derivative at scale r h + bias.

An item is a group of neighbouring channels; the last may be smaller. A cluster of blocks processes one item at a time,
and each block has a part of the rows. A thread copies vectors of the same channels, from equidistant rows, into its own
places in shared memory. Threads wait for each other only for the sums. When a thread is finished with a place in the
second pass, it requests the next item's data for it.

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
from gradkern.cuda.device_code.numbers import number_access
from gradkern.kernels.channels.activation import derivative_of
from gradkern.kernels.channels.channels_last_config import CHANNELS_AT, PARTS, ChannelsLastConfig

ROWS_AT_ONCE = 8  # copied through registers


def build(config: ChannelsLastConfig) -> Callable[..., None]:
    """The kernel for `config`, as a function that Numba compiles with every argument (ARGUMENTS) an int64."""
    THREADS, WARPS, WIDTH = config.threads, config.warps, config.width
    SCALE_SUM, BIAS_SUM = "scale_sum" in config.outputs, "bias_sum" in config.outputs
    ACTIVE = config.activation != "none"
    VECTOR, PAIR, BY_REGISTERS = config.vector, config.pair, config.by_registers

    DOUBLE = config.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    parameter, put_parameter = number_access(config.parameter, config.compute)
    statistic, _ = number_access(config.statistic, config.compute)
    load, store = i.loader("shared", config.data, WIDTH), i.storer("global", config.data, WIDTH)
    load_pair, store_pair = i.loader("shared", config.compute, 2), i.storer("shared", config.compute, 2)
    shuffle_down = i.shuffle_down_double if DOUBLE else i.shuffle_down
    send_pair = i.send_pair_double if DOUBLE else i.send_pair
    times_derivative = derivative_of(config.activation, config.compute, config.compute, True)
    copy = None if BY_REGISTERS else i.async_copy(VECTOR)
    load_here, store_there = i.loader("global", config.data, WIDTH), i.storer("shared", config.data, WIDTH)
    all_but_3, all_but_2, all_but_1, all_parts = (i.wait_for_copies(newest) for newest in range(PARTS - 1, -1, -1))

    @device_function
    def wait_for_part(part: int) -> None:
        if part == 0:
            all_but_3()
        elif part == 1:
            all_but_2()
        elif part == 2:
            all_but_1()
        else:
            all_parts()

    @device_function
    def end_of_part(part: int, steps: int, own: int) -> int:
        """The end of a part of this thread's rows; it has `own` of at most `steps` rows."""
        return min(int32((part + 1) * steps // PARTS), own)

    @device_function
    def fetch_some(D: int, X: int, at: int, row: int, last: int, places: tuple[int, int, int, int]) -> None:
        """Copies ROWS_AT_ONCE rows, up to the last, through registers. All loads precede the stores: their latencies
        overlap.
        """
        own_D, own_X, pitch, step = places
        some = cuda.local.array(1, FLOAT)
        d, x = cuda.local.array(ROWS_AT_ONCE, FLOAT), cuda.local.array(ROWS_AT_ONCE, FLOAT)
        for n in range(ROWS_AT_ONCE):
            here = at + int64(min(int32(row + n), last)) * step
            load_here(some, D + here)
            d[n] = some[0]
            load_here(some, X + here)
            x[n] = some[0]
        for n in range(ROWS_AT_ONCE):
            there = min(int32(row + n), last) * pitch
            some[0] = d[n]
            store_there(own_D + there, some)
            some[0] = x[n]
            store_there(own_X + there, some)

    @device_function
    def fetch(D: int, X: int, at: int, first: int, last: int, places: tuple[int, int, int, int]) -> None:
        """Copies a thread's rows from `first` to `last`, as one group of copies.

        places: the addresses of D's and X's first rows in shared memory, and the bytes from row to row there and in
        memory.
        """
        own_D, own_X, pitch, step = places
        row = first
        while row < last:
            if BY_REGISTERS:
                fetch_some(D, X, at, row, int32(last - 1), places)
                row = int32(row + ROWS_AT_ONCE)
            else:
                here = at + int64(row) * step
                copy(own_D + row * pitch, D + here)
                copy(own_X + row * pitch, X + here)
                row = int32(row + 1)
        i.commit_copies()

    @device_function
    def load_row(
        d: Any, h: Any, row: int, places: tuple[int, int, int, int], means: Any, gains: Any, biases: Any
    ) -> None:  # fmt: skip
        """Loads a vector of D, times the activation's derivative, and of X - mean."""
        own_D, own_X, pitch, _ = places
        load(d, own_D + row * pitch)
        load(h, own_X + row * pitch)
        for e in range(WIDTH):
            h[e] = h[e] - means[e]
            if ACTIVE:
                d[e] = times_derivative(d[e], h[e] * gains[e] + biases[e])

    def over_rows(second: bool) -> Callable[..., None]:
        """A pass over a thread's rows from `first` to `last`. The first adds D and D (X - mean) to the sums; the second
        writes dX, from shifts and slopes.
        """
        SECOND = second

        @device_function
        def one_pass(
            dX: int, at: int, first: int, last: int, places: tuple[int, int, int, int],
            means: Any, gains: Any, biases: Any, one: Any, another: Any,
        ) -> None:  # fmt: skip
            _, _, _, step = places
            d, h = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
            row = first
            while row < last:
                load_row(d, h, row, places, means, gains, biases)
                for e in range(WIDTH):
                    if SECOND:
                        d[e] = gains[e] * (d[e] - one[e] - h[e] * another[e])
                    else:
                        one[e] += d[e]
                        another[e] += d[e] * h[e]
                if SECOND:
                    store(dX + at + int64(row) * step, d)
                row = int32(row + 1)

        return one_pass

    first_pass, second_pass = over_rows(False), over_rows(True)

    @device_function
    def load_pairs(firsts: Any, seconds: Any, address: int) -> None:
        """Loads two numbers of each channel of a vector."""
        pair = cuda.local.array(2, FLOAT)
        for e in range(WIDTH):
            load_pair(pair, address + e * PAIR)
            firsts[e], seconds[e] = pair[0], pair[1]

    @device_function
    def sum_of_pairs(total: Any, address: int, count: int, step: int) -> None:
        """Adds the pairs of one channel from `count` places."""
        pair = cuda.local.array(2, FLOAT)
        total[0] = total[1] = FLOAT(0)
        for n in range(count):
            load_pair(pair, address + int32(n) * step)
            total[0] += pair[0]
            total[1] += pair[1]

    def kernel(
        D: int, X: int, scale: int, bias: int, mean: int, deviation: int, dX: int, scale_sum: int, bias_sum: int,
        items: int, channels: int, rows: int, row_bytes: int, vectors: int, cluster_size: int, steps: int,
        warps_at: int, blocks_at: int, data_at: int,
    ) -> None:  # fmt: skip
        items, vectors, cluster_size, steps = int32(items), int32(vectors), int32(cluster_size), int32(steps)
        rows, warps_at, blocks_at, data_at = int32(rows), int32(warps_at), int32(blocks_at), int32(data_at)
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        warp, lane = int32(thread // 32), int32(thread % 32)
        rows_of_warp, row_of_warp = i.quotient(int32(32), vectors), i.quotient(lane, vectors)
        vector = int32(lane - row_of_warp * vectors)
        at_once = int32(WARPS * rows_of_warp)
        cluster, clusters = i.quotient(block, cluster_size), i.quotient(int32(cuda.gridDim.x), cluster_size)
        slice_ = int32(block - cluster * cluster_size)
        group = int32(vectors * WIDTH)
        pairs = int32(group * PAIR)

        # this thread's rows: every at_once-th of the block's rows, from first_row on
        first_row = int32(warp * rows_of_warp + row_of_warp)
        from_row = i.quotient(int32(slice_ * rows), cluster_size)
        count = int32(i.quotient(int32((slice_ + 1) * rows), cluster_size) - from_row)
        own_rows = int32(0)
        if row_of_warp < rows_of_warp:
            own_rows = i.quotient(int32(max(count - first_row + (at_once - 1), 0)), at_once)
        share = FLOAT(1) / FLOAT(rows)

        shared = i.shared_memory()
        of_channel = shared + CHANNELS_AT + thread * PAIR  # if the group has a channel with this thread's number
        of_vector = shared + CHANNELS_AT + vector * (WIDTH * PAIR)
        of_warps, of_blocks = shared + warps_at, shared + blocks_at
        pitch = int32(at_once * vectors * VECTOR)
        own_D = shared + data_at + (first_row * vectors + vector) * VECTOR
        places = (own_D, own_D + steps * pitch, pitch, at_once * row_bytes)
        if cluster_size > 1:
            if thread == 0:
                i.transaction_barrier_init(shared, 1)
                i.transaction_barrier_init(shared + 8, 1)
                i.transaction_barrier_fence()
            i.cluster_barrier()

        from_item = int64(from_row + first_row) * row_bytes + vector * VECTOR
        item, at = cluster, from_item + int64(cluster) * (vectors * VECTOR)
        own = own_rows if (int64(item) * vectors + vector) * WIDTH < channels else int32(0)
        first, part = int32(0), i.opaque(int32(0))
        while part < PARTS:
            last = end_of_part(part, steps, own)
            fetch(D, X, at, first, last, places)
            first, part = last, int32(part + 1)

        means, gains = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        biases, unused = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        shifts, slopes = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        d_sum, dh_sum = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        pair = cuda.local.array(2, FLOAT)
        buffer, parity = int32(0), int32(0)
        while item < items:
            channel, r = int64(item) * group + thread, FLOAT(0)
            is_own = thread < group and channel < channels
            if is_own:
                pair[0], r = statistic(mean, channel), statistic(deviation, channel)
                pair[1] = parameter(scale, channel) * r
                store_pair(of_channel, pair)
                if ACTIVE:
                    pair[0] = parameter(bias, channel)
                    store_pair(of_channel + 2 * pairs, pair)
            wait_for_block()
            load_pairs(means, gains, of_vector)
            if ACTIVE:
                load_pairs(biases, unused, of_vector + 2 * pairs)

            # first pass: the sums of D and of D (X - mean), over this thread's rows
            for e in range(WIDTH):
                d_sum[e] = dh_sum[e] = FLOAT(0)
            first, part = int32(0), i.opaque(int32(0))
            while part < PARTS:
                last = end_of_part(part, steps, own)
                wait_for_part(part)
                first_pass(dX, at, first, last, places, means, gains, biases, d_sum, dh_sum)
                first, part = last, int32(part + 1)

            # over the rows of a warp, the warps, the blocks
            left = rows_of_warp
            while left > 1:
                half = int32((left + 1) // 2)
                for e in range(WIDTH):
                    d_more = shuffle_down(d_sum[e], int32(half * vectors))
                    dh_more = shuffle_down(dh_sum[e], int32(half * vectors))
                    if row_of_warp + half < left:
                        d_sum[e] += d_more
                        dh_sum[e] += dh_more
                left = half
            if row_of_warp == 0:
                for e in range(WIDTH):
                    pair[0], pair[1] = d_sum[e], dh_sum[e]
                    store_pair(of_warps + warp * pairs + (vector * WIDTH + e) * PAIR, pair)
            wait_for_block()
            if cluster_size > 1:
                arrived, blocks = shared + buffer * 8, of_blocks + buffer * (cluster_size * pairs)
                if thread == 0:
                    i.arrive_and_expect(arrived, cluster_size * pairs)
                peer = i.quotient(thread, group)
                of, peers = int32(thread - peer * group), i.quotient(int32(THREADS), group)
                if peer < peers:
                    sum_of_pairs(pair, of_warps + of * PAIR, WARPS, pairs)
                    while peer < cluster_size:
                        to = i.peer_address(blocks + slice_ * pairs + of * PAIR, peer)
                        send_pair(to, pair[0], pair[1], i.peer_address(arrived, peer))
                        peer = int32(peer + peers)
                if thread < group:
                    i.wait_cluster(arrived, parity)
                    sum_of_pairs(pair, blocks + thread * PAIR, cluster_size, pairs)
                parity = int32(parity ^ buffer)
                buffer = int32(1 - buffer)  # two buffers: one exchange an item is enough
            elif thread < group:
                sum_of_pairs(pair, of_warps + thread * PAIR, WARPS, pairs)
            if is_own and slice_ == 0:
                if SCALE_SUM:
                    put_parameter(scale_sum, channel, pair[1] * r)
                if BIAS_SUM:
                    put_parameter(bias_sum, channel, pair[0])
            if thread < group:
                pair[0], pair[1] = pair[0] * share, pair[1] * share * r * r
                store_pair(of_channel + pairs, pair)
            wait_for_block()
            load_pairs(shifts, slopes, of_vector + pairs)

            # second pass: dX, and copies of the next item
            at_before, own_before = at, own
            item = int32(item + clusters)
            at = from_item + int64(item) * (vectors * VECTOR)
            own = own_rows if item < items and (int64(item) * vectors + vector) * WIDTH < channels else int32(0)
            first_before, first, part = int32(0), int32(0), i.opaque(int32(0))
            while part < PARTS:
                last_before, last = end_of_part(part, steps, own_before), end_of_part(part, steps, own)
                second_pass(dX, at_before, first_before, last_before, places, means, gains, biases, shifts, slopes)
                fetch(D, X, at, first, last, places)
                first_before, first, part = last_before, last, int32(part + 1)
        if cluster_size > 1:
            i.cluster_barrier()  # no block leaves while another may still send to it

    return kernel
