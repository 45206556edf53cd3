"""Reduces the two sums of a row, s1 and s2, over all of its threads: of a warp, of a group of warps, of a cluster's
blocks.

The sums are exchanged as one pair: by warps of a group through shared memory, with a named barrier; by blocks of a
cluster through each other's shared memory, with a transaction barrier. Two alternating buffers make one barrier a row
sufficient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_config import RowConfig


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
    """Three device functions that reduce `pair`, an array of s1 and s2; each thread gets the row's sums:

    over_lanes(pair)                        of the pairs of a row's threads in one warp
    over_warps(pair, pairs, arrived, buffer, parity, group, warp, warp_lane, slice_)
                                            of the pairs of warps; the arguments are those of an exchange
    from_memory(pair, row_sums, row, warp_lane)   of the pairs that the previous launch wrote for every block of a row
    """
    LANES, BLOCKS_PER_ROW, CENTRED = config.lanes, config.blocks_per_row, config.centred
    SLOTS, PAIR = config.exchange_slots, 2 * config.itemsize
    DOUBLE = config.compute == "float64"
    FLOAT = float64 if DOUBLE else float32
    load_pair, load_4 = i.loader("shared", config.compute, 2), i.loader("shared", config.compute, 4)
    load_global_pair = i.loader("global", config.compute, 2)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor
    exchange = pair_exchange(config)

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
    def over_warps(
        pair: Any, pairs: int, arrived: int, buffer: int, parity: int, group: int, warp: int, warp_lane: int,
        slice_: int,
    ) -> None:  # fmt: skip
        four, more = cuda.local.array(4, FLOAT), cuda.local.array(2, FLOAT)
        at = exchange(pair, pairs, arrived, buffer, parity, group, warp, warp_lane, slice_)
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
    def from_memory(pair: Any, sums: int, row: int, warp_lane: int) -> None:
        more = cuda.local.array(2, FLOAT)
        pair[0] = pair[1] = FLOAT(0)
        for other in range(warp_lane, BLOCKS_PER_ROW, 32):
            load_global_pair(more, sums + (int64(row) * BLOCKS_PER_ROW + other) * PAIR)
            pair[0] += more[0]
            pair[1] += more[1]
        butterfly(pair, 32)

    return over_lanes, over_warps, from_memory
