"""How the two values of a reduction are combined over all threads of a row: a warp's, a block's, a cluster's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import Reduction
from gradkern.kernels.rows.config import BARRIER, RowsConfig
from gradkern.kernels.rows.problem import RowsTypes

__all__ = ["cluster_barriers", "identity_of", "over_row", "over_teams"]


def identity_of(types: RowsTypes, reduction: Reduction) -> Callable[[], Any]:
    """The device function identity() -> the two values of no elements."""
    FIRST, SECOND = reduction.identity
    FLOAT = float64 if types.compute == "float64" else float32

    @device_function
    def identity() -> Any:
        return FLOAT(FIRST), FLOAT(SECOND)

    return identity


def cluster_barriers(types: RowsTypes, config: RowsConfig) -> Callable[[int], None]:
    """The device function begin(thread): makes each reduction's barrier, before any block of the cluster sends to
    another. Whoever combines the first reduction waits for the others to have done so, by when loads are under way.
    """
    REDUCTIONS, BYTES = types.reductions, config.cluster_bytes(types)

    @device_function
    def begin(thread: int) -> None:
        if thread == 0:
            for k in range(REDUCTIONS):
                i.transaction_barrier_init(i.shared_memory() + k * BARRIER, 1)
            i.transaction_barrier_fence()
            for k in range(REDUCTIONS):
                i.arrive_and_expect(i.shared_memory() + k * BARRIER, BYTES)
        i.warp_barrier()
        i.cluster_arrive()

    return begin


def over_row(types: RowsTypes, config: RowsConfig, reduction: Reduction, number: int) -> Callable[..., Any]:
    """The device function combine(first, second, thread, rank) of rows whose elements are neighbours: all threads of a
    row get the same. number: of the reduction.
    """
    LANES, CLUSTER, SLOTS, PAIRS, WARPS = config.lanes, config.cluster, config.slots, types.pairs, config.lanes // 32
    IN_WARP, SPREAD = min(LANES, 32), 1 << (min(SLOTS, 32) - 1).bit_length()
    DOUBLE, PAIR = types.compute == "float64", 2 * ITEMSIZE[types.compute]
    FLOAT, BARRIER_AT, AT = float64 if DOUBLE else float32, number * BARRIER, config.partial_at(types, number)
    combine, identity = reduction.combine, identity_of(types, reduction)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor
    send_pair = i.send_pair_double if DOUBLE else i.send_pair
    store_pair, load_pair = i.storer("shared", types.compute, 2), i.loader("shared", types.compute, 2)

    @device_function
    def over_lanes(first: Any, second: Any, lanes: int) -> Any:
        distance = int32(lanes // 2)
        while distance > 0:
            more, other = shuffle_xor(first, distance), second
            if PAIRS:
                other = shuffle_xor(second, distance)
            first, second = combine(first, second, more, other)
            distance = int32(distance // 2)
        return first, second

    @device_function
    def over_row(first: Any, second: Any, thread: int, rank: int) -> Any:
        first, second = over_lanes(first, second, IN_WARP)
        if SLOTS > 1:
            pair = cuda.local.array(2, FLOAT)
            warp, warp_lane = int32(thread // 32), int32(thread % 32)
            at = i.shared_memory() + AT
            if CLUSTER > 1:
                barrier = i.shared_memory() + BARRIER_AT
                if number == 0:
                    i.warp_barrier()
                    i.cluster_wait()
                if warp_lane < CLUSTER:
                    to = i.peer_address(at + (rank * WARPS + warp) * PAIR, warp_lane)
                    send_pair(to, first, second, i.peer_address(barrier, warp_lane))
                i.wait_cluster(barrier, 0)
            else:
                if warp_lane == 0:
                    pair[0], pair[1] = first, second
                    store_pair(at + warp * PAIR, pair)
                wait_for_block()
            first, second = identity()
            for slot in range(0, SLOTS, 32):
                own = int32(slot + warp_lane % SPREAD)
                if own < SLOTS:
                    load_pair(pair, at + own * PAIR)
                    first, second = combine(first, second, pair[0], pair[1])
            first, second = over_lanes(first, second, SPREAD)
        return first, second

    return over_row


def over_teams(types: RowsTypes, config: RowsConfig, reduction: Reduction, number: int) -> Callable[..., None]:
    """The device function combine(first, second, thread, team, lane, rank) of rows across memory, which changes the
    values of each of a thread's rows. number: of the reduction.
    """
    WIDTH, LANES, SLOTS, CLUSTER, PAIRS = config.width, config.lanes, config.slots, config.cluster, types.pairs
    DOUBLE, PAIR = types.compute == "float64", 2 * ITEMSIZE[types.compute]
    FLOATS = WIDTH * ITEMSIZE[types.compute]  # bytes of one value of a thread's rows
    FLOAT, BARRIER_AT, AT = float64 if DOUBLE else float32, number * BARRIER, config.partial_at(types, number)
    PAIRS_AT = AT + config.partial_bytes(types) - (CLUSTER > 1) * CLUSTER * LANES * WIDTH * PAIR
    combine, (NONE, NOTHING) = reduction.combine, reduction.identity
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor
    send_pair = i.send_pair_double if DOUBLE else i.send_pair
    store_values, load_values = i.storer("shared", types.compute, WIDTH), i.loader("shared", types.compute, WIDTH)
    load_pair = i.loader("shared", types.compute, 2)

    @device_function
    def clear(first: Any, second: Any) -> None:
        for e in range(WIDTH):
            first[e], second[e] = FLOAT(NONE), FLOAT(NOTHING)

    @device_function
    def over_block(first: Any, second: Any, thread: int, team: int, lane: int) -> None:
        distance = int32(LANES)
        while distance < 32:
            for e in range(WIDTH):
                more, other = shuffle_xor(first[e], distance), second[e]
                if PAIRS:
                    other = shuffle_xor(second[e], distance)
                first[e], second[e] = combine(first[e], second[e], more, other)
            distance = int32(distance * 2)
        if SLOTS > 1:
            more, other = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
            at = i.shared_memory() + AT + lane * FLOATS
            slot = int32(thread // 32) if LANES < 32 else team
            if LANES >= 32 or thread % 32 < LANES:
                store_values(at + slot * (LANES * FLOATS), first)
                if PAIRS:
                    store_values(at + (SLOTS + slot) * (LANES * FLOATS), second)
            wait_for_block()
            clear(first, second)
            for each in range(SLOTS):
                load_values(more, at + each * (LANES * FLOATS))
                if PAIRS:
                    load_values(other, at + (SLOTS + each) * (LANES * FLOATS))
                for e in range(WIDTH):
                    first[e], second[e] = combine(first[e], second[e], more[e], other[e])

    @device_function
    def over_teams(first: Any, second: Any, thread: int, team: int, lane: int, rank: int) -> None:
        over_block(first, second, thread, team, lane)
        if CLUSTER > 1:
            pair = cuda.local.array(2, FLOAT)
            barrier, at = i.shared_memory() + BARRIER_AT, i.shared_memory() + PAIRS_AT
            if number == 0:
                i.warp_barrier()
                i.cluster_wait()
            if team < CLUSTER:
                for e in range(WIDTH):
                    to = i.peer_address(at + ((rank * LANES + lane) * WIDTH + e) * PAIR, team)
                    send_pair(to, first[e], second[e], i.peer_address(barrier, team))
            i.wait_cluster(barrier, 0)
            clear(first, second)
            for each in range(CLUSTER):
                for e in range(WIDTH):
                    load_pair(pair, at + ((each * LANES + lane) * WIDTH + e) * PAIR)
                    first[e], second[e] = combine(first[e], second[e], pair[0], pair[1])

    return over_teams
