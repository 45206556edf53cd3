"""Reduces the pair of a row over all of its threads: of a warp, of a group of warps, of a cluster's blocks. That of a
gradient is s1 and s2; that of a norm the row's sum and the sum of squared deviations from its mean.

The sums are exchanged as one pair: by warps of a group through shared memory, with a named barrier; by blocks of a
cluster through each other's shared memory, with a transaction barrier. Two alternating buffers make one barrier a row
sufficient.

Of a norm each warp computes its own mean first, and then deviations from it, so that no digits cancel. Warps exchange
these pairs, a sum and a sum of squares, once. A part of n elements adds its own squares and (sum - n mean)^2 / n to the
row's squares about the row's mean. (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983, formula
1.5b.) Without a mean the squares are those of the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig, NormForwardConfig
from gradkern.ops.layer_norm.cuda.row_config import RowConfig


class RowPasses(NamedTuple):
    """The device functions of a norm or of its gradient. pair: a row's two sums, first of a thread, then of the row.

    load_parameters  (scales, biases, shifts, scale, bias, shift, first_column, columns, lane, vectors): those that a
                     thread keeps in registers
    given            (mean, inv_std, row) -> m, r of a row that are arguments
    first            (pair, x, g, scale_sum, bias_sum, scales, biases, shifts, scale, bias, first_column, x_at, d_at,
                     second_at, m, r, over_own, lane, vectors, inside, valid): loads a thread's elements of X and of the
                     second array; the pair of the row's threads in this warp. over_own: 1 over their elements
    share            (slot, columns, slice_columns, shift) -> the number of elements of the pair in this slot of an
                     exchange; shift: of aligned vectors, elements between the first vector's begin and the row's. None:
                     pairs are sums, whatever they are sums of
    merge            (pair, at, counts, over_counts, over_columns, warp_lane): the row's pair, from those at this
                     address of shared memory; this lane takes every 32nd of them. counts: of elements of each, and
                     1 over them or 0; over_columns: 1 over the row's (with two launches: the block's)
    from_memory      (pair, row_sums, row, over_columns, warp_lane, columns, slice_columns): the row's pair, from those
                     that the previous launch wrote for every block of a row
    numbers          (pair, m, r, mean, inv_std, row, over_columns, epsilon, writes) -> m, r of the row
    second           (pair, x, g, dx_sum, scales, biases, x_at, d_at, added_at, out_at, second_at, m, r, over_columns,
                     lane, vectors, inside, valid): writes a thread's elements of the results

    valid: this thread has a row; vectors: of a row in this block; inside: with aligned vectors, a bit for each of the
    thread's elements, set if it belongs to the row.
    """

    load_parameters: Callable[..., None]
    given: Callable[..., Any] | None
    first: Callable[..., None]
    share: Callable[..., int] | None
    merge: Callable[..., None]
    from_memory: Callable[..., None]
    numbers: Callable[..., Any]
    second: Callable[..., None]


def group_barrier(config: RowConfig) -> Callable[[int], None]:
    """The device function wait(group): a barrier of the threads of one group of warps.

    Blocks that use all 16 named barriers limit the occupancy, so blocks with few groups use as many as they have
    groups.
    """
    GROUPS, GROUP_THREADS = config.groups_per_block, config.group_threads
    first, second, third, fourth = (i.barrier_number(1 + number) for number in range(4))

    @device_function
    def wait(group: int) -> None:
        if GROUP_THREADS == 32:
            i.warp_barrier()
        elif GROUPS > 4:
            i.named_barrier(1 + group, GROUP_THREADS)
        elif GROUPS == 1 or group == 0:
            first(GROUP_THREADS)
        elif GROUPS == 2 or group == 1:
            second(GROUP_THREADS)
        elif GROUPS == 3 or group == 2:
            third(GROUP_THREADS)
        else:
            fourth(GROUP_THREADS)

    return wait


def pair_exchange(config: RowConfig) -> Callable[..., int]:
    """The device function exchange(pair, pairs, arrived, buffer, parity, group, warp, warp_lane, slice_): every warp of
    a row provides its pair. Returns the address of all pairs, ordered by block and warp.

    The exchange uses the buffer `buffer` at address `pairs`. arrived, parity: a cluster's transaction barriers.
    """
    BLOCKS_PER_ROW, WARPS, wait_for_group = config.blocks_per_row, config.group_threads // 32, group_barrier(config)
    CLUSTER, SLOTS, PAIR = config.cluster, config.exchange_slots, 2 * config.itemsize
    store_pair = i.storer("shared", config.compute, 2)
    send_pair = i.send_pair_double if config.compute == "float64" else i.send_pair

    @device_function
    def exchange(
        pair: Any, pairs: int, arrived: int, buffer: int, parity: int, group: int, warp: int, warp_lane: int,
        slice_: int,
    ) -> int:  # fmt: skip
        at = pairs + buffer * (SLOTS * PAIR)
        if CLUSTER:
            # Each warp sends to all blocks, and arrives at its own block's barrier when all its lanes have read the
            # stage: a thread that has waited there may refill the stage, too. racecheck orders only the lane that
            # arrives, not those that the warp's barrier put before it, and reports their reads against the refill. (A
            # named barrier instead of this was 2 to 6 % slower at 65536 columns.)
            done = arrived + buffer * 8
            i.warp_barrier()
            if warp_lane == 0:
                i.arrive_and_expect(done, BLOCKS_PER_ROW * PAIR)
            if warp_lane < BLOCKS_PER_ROW:
                to = i.peer_address(at + (slice_ * WARPS + warp) * PAIR, warp_lane)
                send_pair(to, pair[0], pair[1], i.peer_address(done, warp_lane))
            i.wait_cluster(done, parity)
        else:
            if warp_lane == 0:
                store_pair(at + warp * PAIR, pair)
            wait_for_group(group)
        return at

    return exchange


def row_sums(config: LayerNormConfig) -> tuple[Callable[..., None], Callable[..., None], Callable[..., None]]:
    """over_lanes(pair), that adds up a row's pairs in one warp; and merge and from_memory of RowPasses."""
    LANES, BLOCKS_PER_ROW, CENTRED = config.lanes, config.blocks_per_row, config.centred
    SLOTS, PAIR = config.exchange_slots, 2 * config.itemsize
    DOUBLE = config.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    load_pair, load_4 = i.loader("shared", config.compute, 2), i.loader("shared", config.compute, 4)
    load_global_pair = i.loader("global", config.compute, 2)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor

    @device_function
    def butterfly(pair: Any, lanes: int) -> None:
        """The sums of both values over `lanes` neighbouring lanes, the same in every lane."""
        distance = int32(lanes // 2)
        while distance > 0:
            if CENTRED:
                pair[0] += shuffle_xor(pair[0], distance)
            pair[1] += shuffle_xor(pair[1], distance)
            distance = int32(distance // 2)

    @device_function
    def over_lanes(pair: Any) -> None:
        butterfly(pair, min(LANES, 32))

    @device_function
    def merge(pair: Any, at: int, _counts: Any, _over_counts: Any, _over_columns: Any, warp_lane: int) -> None:
        four, more = cuda.local.array(4, FLOAT), cuda.local.array(2, FLOAT)
        if SLOTS <= 8:
            pair[0] = pair[1] = FLOAT(0)
            for slot in range(SLOTS // 2):
                load_4(four, at + slot * (2 * PAIR))
                pair[0] += four[0] + four[2]
                pair[1] += four[1] + four[3]
        else:
            load_pair(pair, at + warp_lane % min(SLOTS, 32) * PAIR)
            for slot in range(32, SLOTS, 32):
                load_pair(more, at + (slot + warp_lane) * PAIR)
                pair[0] += more[0]
                pair[1] += more[1]
            butterfly(pair, min(SLOTS, 32))

    @device_function
    def from_memory(
        pair: Any, sums: int, row: int, _over_columns: Any, warp_lane: int, _columns: int, _slice_columns: int
    ) -> None:
        more = cuda.local.array(2, FLOAT)
        pair[0] = pair[1] = FLOAT(0)
        for other in range(warp_lane, BLOCKS_PER_ROW, 32):
            load_global_pair(more, sums + (int64(row) * BLOCKS_PER_ROW + other) * PAIR)
            pair[0] += more[0]
            pair[1] += more[1]
        butterfly(pair, 32)

    return over_lanes, merge, from_memory


def row_statistics(config: NormForwardConfig) -> tuple[Callable[..., Any], ...]:
    """over_lanes(value), the sum of a value over a row's threads in one warp; and share, merge and from_memory of
    RowPasses.
    """
    WIDTH, LANES, VECTORS = config.width, config.lanes, config.vectors
    UNPREDICATED_VECTORS = config.unpredicated_vectors
    BLOCKS_PER_ROW, WARPS = config.blocks_per_row, config.group_threads // 32
    SLOTS, PAIR = config.exchange_slots, 2 * config.itemsize
    CENTRED, CLUSTER, DOUBLE = config.centred, config.cluster, config.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    load_shared, load_global = i.loader("shared", config.compute, 2), i.loader("global", config.compute, 2)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor

    @device_function
    def butterfly(value: Any, lanes: int) -> Any:
        """The sum over `lanes` neighbouring lanes, the same in each."""
        distance = int32(lanes // 2)
        while distance > 0:
            value += shuffle_xor(value, distance)
            distance = int32(distance // 2)
        return value

    @device_function
    def over_lanes(value: Any) -> Any:
        return butterfly(value, min(LANES, 32))

    @device_function
    def share(slot: int, columns: int, slice_columns: int, shift: int) -> int:
        warp, slice_, own = slot, int32(0), int32(columns + shift)
        if CLUSTER:
            slice_ = int32(slot // WARPS)
            warp = int32(slot - slice_ * WARPS)
            own = int32(min(int32(slice_columns), int32(own - slice_ * int32(slice_columns))))
        elements = int32(32 * WIDTH * UNPREDICATED_VECTORS)
        if warp == 0 and slice_ == 0:  # the shift is less than a vector
            elements = int32(elements - shift)
        for j in range(UNPREDICATED_VECTORS, VECTORS):
            first = int32((warp * 32 + j * LANES) * WIDTH)
            elements = int32(elements + min(max(int32(own - first), int32(0)), int32(32 * WIDTH)))
        return elements if warp < WARPS and slice_ < BLOCKS_PER_ROW else int32(0)

    @device_function
    def squares_about(mean: Any, pair: Any, n: Any, over_n: Any) -> Any:
        off = pair[0] - n * mean
        return pair[1] + off * off * over_n

    @device_function
    def over(n: Any) -> Any:
        return FLOAT(1) / n if n > FLOAT(0) else FLOAT(0)

    @device_function
    def merge(pair: Any, at: int, n: Any, over_n: Any, over_columns: Any, warp_lane: int) -> None:
        more = cuda.local.array(2, FLOAT)
        load_shared(pair, at + warp_lane % min(SLOTS, 32) * PAIR)
        if CENTRED:
            total = pair[0]
            for k in range(1, SLOTS // 32):
                load_shared(more, at + (32 * k + warp_lane) * PAIR)
                total += more[0]
            total = butterfly(total, min(SLOTS, 32))
            mean = total * over_columns
            squares = squares_about(mean, pair, n[0], over_n[0])
            for k in range(1, SLOTS // 32):
                load_shared(more, at + (32 * k + warp_lane) * PAIR)
                squares += squares_about(mean, more, n[k], over_n[k])
            pair[0] = total
        else:
            squares = pair[1]
            for k in range(1, SLOTS // 32):
                load_shared(more, at + (32 * k + warp_lane) * PAIR)
                squares += more[1]
        pair[1] = butterfly(squares, min(SLOTS, 32))

    @device_function
    def from_memory(
        pair: Any, row_sums: int, row: int, over_columns: Any, warp_lane: int, columns: int, slice_columns: int
    ) -> None:
        more = cuda.local.array(2, FLOAT)
        first = row_sums + int64(row) * (BLOCKS_PER_ROW * PAIR)
        total, squares = FLOAT(0), FLOAT(0)
        if CENTRED:
            for other in range(warp_lane, BLOCKS_PER_ROW, 32):
                load_global(more, first + other * PAIR)
                total += more[0]
            total = butterfly(total, 32)
        mean = total * over_columns
        for other in range(warp_lane, BLOCKS_PER_ROW, 32):
            load_global(more, first + other * PAIR)
            if CENTRED:
                n = FLOAT(min(slice_columns, columns - int64(other) * slice_columns))
                squares += squares_about(mean, more, n, over(n))
            else:
                squares += more[1]
        pair[0], pair[1] = total, butterfly(squares, 32)

    return over_lanes, share, merge, from_memory
