"""Combine the two values of a reduction over all threads of a row: of a warp, a block or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import Reduction, not_rescaled
from gradkern.kernels.rows.config import BARRIER, RowsConfig
from gradkern.kernels.rows.problem import RowsTypes


def identity_of(types: RowsTypes, reduction: Reduction) -> Callable[[], Any]:
    """The device function identity() -> the two values of no elements."""
    FIRST, SECOND = reduction.identity
    FLOAT = float64 if types.compute == "float64" else float32

    @device_function
    def identity() -> Any:
        return FLOAT(FIRST), FLOAT(SECOND)

    return identity


def cluster_barriers(types: RowsTypes, config: RowsConfig) -> Callable[[int], None]:
    """The device function begin(thread): initializes each reduction's barrier before any block of the cluster sends to
    another. The first reduction's combine waits until all blocks have done so; loads are in flight by then.
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
        i.cluster_arrive_relaxed()  # the fence orders what the others wait for

    return begin


def over_lanes_of(types: RowsTypes, reduction: Reduction) -> Callable[..., Any]:
    """The device function (first, second, lanes): of so many lanes side by side, a power of two."""
    PAIRS, combine = types.pairs and not reduction.single, reduction.combine
    shuffle_xor = i.shuffle_xor_double if types.compute == "float64" else i.shuffle_xor

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

    return over_lanes


def over_row(
    types: RowsTypes, config: RowsConfig, reduction: Reduction, number: int, of_parts: bool = False
) -> tuple[Callable[..., None], Callable[..., Any]]:
    """Device functions for rows whose elements are adjacent. number: of the reduction.

    send(first, second, thread, rank)        a warp's values, to all warps of the row
    combined(first, second, thread, total)   the row's values, the same in all its threads; of a row of one warp its own

    of_parts: the values were computed with the first reduction's value of each warp's part, and are rescaled to its
    value of the row, `total`.
    """
    CLUSTER, SLOTS, WARPS = config.cluster, config.slots, config.lanes // 32
    SPREAD = 1 << (min(SLOTS, 32) - 1).bit_length()
    DOUBLE, PAIR = types.compute == "float64", 2 * ITEMSIZE[types.compute]
    FLOAT, BARRIER_AT, AT = float64 if DOUBLE else float32, number * BARRIER, config.partial_at(types, number)
    FIRST_AT, rescale = config.partial_at(types, 0), reduction.rescale or not_rescaled
    combine, identity, over_lanes = reduction.combine, identity_of(types, reduction), over_lanes_of(types, reduction)
    send_pair = i.send_pair_double if DOUBLE else i.send_pair
    store_pair, load_pair = i.storer("shared", types.compute, 2), i.loader("shared", types.compute, 2)

    @device_function
    def send(first: Any, second: Any, thread: int, rank: int) -> None:
        if SLOTS > 1:
            pair = cuda.local.array(2, FLOAT)
            warp, warp_lane = int32(thread >> 5), int32(thread & 31)
            at = i.shared_memory() + AT
            if CLUSTER > 1:
                barrier = i.shared_memory() + BARRIER_AT
                if number == 0:
                    i.warp_barrier()
                    i.cluster_wait()
                if warp_lane < CLUSTER:
                    to = i.peer_address(at + (rank * WARPS + warp) * PAIR, warp_lane)
                    send_pair(to, first, second, i.peer_address(barrier, warp_lane))
            elif warp_lane == 0:
                pair[0], pair[1] = first, second
                store_pair(at + warp * PAIR, pair)

    @device_function
    def combined(first: Any, second: Any, thread: int, total: Any) -> Any:
        if SLOTS > 1:
            pair, part = cuda.local.array(2, FLOAT), cuda.local.array(2, FLOAT)
            warp_lane, at = int32(thread & 31), i.shared_memory()
            if CLUSTER > 1:
                i.wait_cluster(at + BARRIER_AT, 0)
            elif number == 0 or not of_parts:
                wait_for_block()
            first, second = identity()
            for slot in range(0, SLOTS, 32):
                own = int32(slot + warp_lane % SPREAD)
                if own < SLOTS:
                    load_pair(pair, at + (AT + own * PAIR))
                    if of_parts:
                        load_pair(part, at + (FIRST_AT + own * PAIR))
                        pair[0], pair[1] = rescale(pair[0], pair[1], part[0], total)
                    first, second = combine(first, second, pair[0], pair[1])
            first, second = over_lanes(first, second, SPREAD)
        return first, second

    return send, combined


def over_teams(types: RowsTypes, config: RowsConfig, reduction: Reduction, number: int) -> Callable[..., None]:
    """The device function combine(first, second, thread, lane, rank) for rows across memory. It changes the values of
    each of a thread's rows. number: of the reduction.

    Each row's parts are combined by one thread, and read by all that share it: were they combined by all, shared memory
    would have more to do than global memory.
    """
    WIDTH, LANES, SLOTS, CLUSTER, PAIRS = config.width, config.lanes, config.slots, config.cluster, types.pairs
    THREADS, ROWS = config.threads, config.lanes * config.width
    DOUBLE, ITEM = types.compute == "float64", ITEMSIZE[types.compute]
    FLOAT, BARRIER_AT, AT = float64 if DOUBLE else float32, number * BARRIER, config.partial_at(types, number)
    SECOND_AT, PAIRS_AT = AT + SLOTS * ROWS * ITEM, AT + config.slot_bytes(types)
    combine, identity = reduction.combine, identity_of(types, reduction)
    shuffle_xor = i.shuffle_xor_double if DOUBLE else i.shuffle_xor
    send_pair = i.send_pair_double if DOUBLE else i.send_pair
    store_values, load_values = i.storer("shared", types.compute, WIDTH), i.loader("shared", types.compute, WIDTH)
    store_one, load_one = i.storer("shared", types.compute, 1), i.loader("shared", types.compute, 1)
    load_pair = i.loader("shared", types.compute, 2)

    @device_function
    def over_warp(first: Any, second: Any) -> None:
        distance = int32(LANES)
        while distance < 32:
            for e in range(WIDTH):
                more, other = shuffle_xor(first[e], distance), second[e]
                if PAIRS:
                    other = shuffle_xor(second[e], distance)
                first[e], second[e] = combine(first[e], second[e], more, other)
            distance = int32(distance * 2)

    @device_function
    def over_slots(row: int) -> Any:
        """Of the block's warps."""
        one, other = cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
        first, second = identity()
        at = i.shared_memory() + row * ITEM
        other[0] = second
        for slot in range(SLOTS):
            load_one(one, at + (AT + slot * ROWS * ITEM))
            if PAIRS:
                load_one(other, at + (SECOND_AT + slot * ROWS * ITEM))
            first, second = combine(first, second, one[0], other[0])
        return first, second

    @device_function
    def over_blocks(row: int) -> Any:
        """Of the cluster's blocks."""
        pair = cuda.local.array(2, FLOAT)
        first, second = identity()
        for block in range(CLUSTER):
            load_pair(pair, i.shared_memory() + PAIRS_AT + (block * ROWS + row) * (2 * ITEM))
            first, second = combine(first, second, pair[0], pair[1])
        return first, second

    @device_function
    def over_teams(first: Any, second: Any, thread: int, lane: int, rank: int) -> None:
        over_warp(first, second)
        if SLOTS > 1 or CLUSTER > 1:
            one = cuda.local.array(1, FLOAT)
            shared, own = i.shared_memory(), int32(lane * (WIDTH * ITEM))
            slot = int32(thread // max(32, LANES) * (ROWS * ITEM))
            if LANES >= 32 or thread % 32 < LANES:
                store_values(shared + AT + slot + own, first)
                if PAIRS:
                    store_values(shared + SECOND_AT + slot + own, second)
            wait_for_block()
            if CLUSTER > 1:
                barrier = shared + BARRIER_AT
                if number == 0:
                    i.cluster_wait()
                row = thread
                while row < ROWS:
                    a, b = over_slots(row)
                    for peer in range(CLUSTER):
                        to = i.peer_address(shared + PAIRS_AT + (rank * ROWS + row) * (2 * ITEM), peer)
                        send_pair(to, a, b, i.peer_address(barrier, peer))
                    row = int32(row + THREADS)
                i.warp_barrier()  # or those that have nothing to send may spin before the others of their warp send
                i.wait_cluster(barrier, 0)
            row = thread
            while row < ROWS:
                if CLUSTER > 1:
                    a, b = over_blocks(row)
                else:
                    a, b = over_slots(row)
                one[0] = a
                store_one(shared + AT + row * ITEM, one)
                if PAIRS:
                    one[0] = b
                    store_one(shared + SECOND_AT + row * ITEM, one)
                row = int32(row + THREADS)
            wait_for_block()
            load_values(first, shared + AT + own)
            if PAIRS:
                load_values(second, shared + SECOND_AT + own)

    return over_teams
