"""The numbers of a channel of a sample, for the kernels: device functions that load them, and pairs of numbers of some
elements, from those of channels or of rows of lanes to those of groups, over a block or a cluster.

A pair is, of two parts combined,

gradient  the sum of D, and of D xh
forward   the mean and the sum of squared deviations from it (T. F. Chan, G. H. Golub and R. J. LeVeque, Updating
          formulae and a pairwise algorithm for computing sample variances, 1979)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import number_access
from gradkern.ops.group_norm.cuda.config import GroupNormConfig


def parameters_of(config: GroupNormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Device functions of a channel c of a sample, with the number nc = n C + c:

    more(sample_scale, nc)                                 1 + s
    gain_and_bias(gamma, beta, sample_scale, sample_shift, c, nc)   gamma (1 + s), beta (1 + s) + t
    """
    arrays, FLOAT = config.arrays, float64 if config.compute == "float64" else float32
    GAMMA, BETA = "gamma" in arrays, "beta" in arrays
    SCALE, SHIFT = "sample_scale" in arrays, "sample_shift" in arrays
    parameter, _ = number_access(config.parameter, config.compute, config.native_bfloat16)
    of_sample, _ = number_access(config.data, config.compute, config.native_bfloat16)

    @device_function
    def more(sample_scale: int, nc: int) -> Any:
        if SCALE:
            return FLOAT(1) + of_sample(sample_scale, nc)
        return FLOAT(1)

    @device_function
    def gain_and_bias(gamma: int, beta: int, sample_scale: int, sample_shift: int, c: int, nc: int) -> Any:
        gain, bias, factor = FLOAT(1), FLOAT(0), more(sample_scale, nc)
        if GAMMA:
            gain = parameter(gamma, c)
        if BETA:
            bias = parameter(beta, c)
        gain, bias = gain * factor, bias * factor
        if SHIFT:
            bias += of_sample(sample_shift, nc)
        return gain, bias

    return more, gain_and_bias


def addends_of(config: GroupNormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Device functions of what is normalized:

    added(skip, bias, c, nc)   what is added to each element of channel c of a sample
    shift(X, skip, bias, n, c, channels, positions)   a number near all of the group that begins with channel c: its
                               first element, before it is rounded
    """
    FLOAT, LINES = float64 if config.compute == "float64" else float32, config.lines
    SUMS, OF_ELEMENTS = config.sums_data, config.skip == "elements"
    BIAS = "bias" in config.arrays
    element, _ = number_access(config.data, config.compute, config.native_bfloat16)

    @device_function
    def added(skip: int, bias: int, c: int, nc: int) -> Any:
        value = FLOAT(0)
        if SUMS:
            if BIAS:
                value = element(bias, c)
            if not OF_ELEMENTS:
                value += element(skip, nc)
        return value

    @device_function
    def shift(X: int, skip: int, bias: int, n: int, c: int, channels: int, positions: int) -> Any:
        at = (n * channels + c) * positions
        if LINES:
            at = n * positions * channels + c
        value = element(X, at)
        if SUMS:
            if OF_ELEMENTS:
                value += element(skip, at)
            value += added(skip, bias, c, n * channels + c)
        return value

    return added, shift


def combining(gradient: bool, compute: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The device functions combine(count, first, second, more, other, another), of two parts' counts and pairs, and
    over_lanes(count, first, second, lanes), of the lanes of a warp, for the first of them. Both return three numbers.
    Sums have no count: it may be anything.
    """
    FLOAT = float64 if compute == "float64" else float32
    shuffle = i.shuffle_xor_double if compute == "float64" else i.shuffle_xor

    @device_function
    def share_of(part: Any, whole: Any) -> Any:
        if compute == "float64":
            return part / whole
        return part * i.reciprocal_approximate(whole)

    @device_function
    def combine(count: Any, first: Any, second: Any, more: Any, other: Any, another: Any) -> Any:
        total = count + more
        if gradient:
            return total, first + other, second + another
        share = share_of(more, max(total, FLOAT(1)))
        apart = other - first
        return total, first + apart * share, second + another + apart * apart * (count * share)

    @device_function
    def over_lanes(count: Any, first: Any, second: Any, lanes: int) -> Any:
        distance = int32(lanes // 2)
        while distance > 0:
            more = FLOAT(0) if gradient else shuffle(count, distance)
            other, another = shuffle(first, distance), shuffle(second, distance)
            count, first, second = combine(count, first, second, more, other, another)
            distance = int32(distance // 2)
        return count, first, second

    return combine, over_lanes


def shared_access(compute: str, first: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The device functions keep(place, value) and kept(place), of numbers in shared memory from byte `first` on."""
    FLOAT, NUMBER = (float64, 8) if compute == "float64" else (float32, 4)
    store, load = i.storer("shared", compute, 1), i.loader("shared", compute, 1)

    @device_function
    def keep(place: int, value: Any) -> None:
        one = cuda.local.array(1, FLOAT)
        one[0] = value
        store(i.shared_memory() + int32(first + place * NUMBER), one)

    @device_function
    def kept(place: int) -> Any:
        one = cuda.local.array(1, FLOAT)
        load(one, i.shared_memory() + int32(first + place * NUMBER))
        return one[0]

    return keep, kept


def group_totals(
    config: GroupNormConfig, combine: Callable[..., Any], over_lanes: Callable[..., Any]
) -> tuple[Callable[..., Any], ...]:
    """Six device functions, for the groups 0 to of_block - 1 of a block or cluster:

    begin(thread)               initializes the barrier of a cluster
    keep_slot(slot, count, first, second)   before a barrier of the block
    combine(thread, rank)       all threads: the groups' pairs, sent to all blocks of the cluster
    total(q)                    the count and the pair of a group; sums have no count
    keep_group(q, first, second), of_group(q)   what its elements need; a barrier of the block between them
    """
    CLUSTER, OF_BLOCK, WARPS, SLOTS = config.cluster, config.of_block, config.threads // 32, config.slots
    EACH = SLOTS // OF_BLOCK if config.lines else SLOTS if CLUSTER > 1 else config.teams
    FLOAT, NUMBER = float64 if config.compute == "float64" else float32, config.itemsize
    SLOTS_AT, PAIRS_AT, GROUPS_AT = config.slots_at, config.pairs_at, config.groups_at
    NUMBERS_AT = config.numbers_at
    COUNTS = not config.gradient
    BYTES = CLUSTER * OF_BLOCK * (4 if COUNTS else 2) * NUMBER
    keep, kept = shared_access(config.compute, config.numbers_at)
    send_pair = i.send_pair_double if config.compute == "float64" else i.send_pair

    @device_function
    def begin(thread: int) -> None:
        if thread == 0:
            i.transaction_barrier_init(i.shared_memory(), 1)
            i.transaction_barrier_fence()
            i.arrive_and_expect(i.shared_memory(), BYTES)
        i.warp_barrier()
        i.cluster_arrive_relaxed()

    @device_function
    def keep_slot(slot: int, count: Any, first: Any, second: Any) -> None:
        if COUNTS:
            keep(SLOTS_AT + slot, count)
        keep(SLOTS_AT + SLOTS + slot, first)
        keep(SLOTS_AT + 2 * SLOTS + slot, second)

    @device_function
    def combine_groups(thread: int, rank: int) -> None:
        if CLUSTER > 1:
            i.warp_barrier()
            i.cluster_wait()
        warp = int32(thread // 32)
        lane = int32(thread - warp * 32)
        q = warp
        while q < OF_BLOCK:
            count, first, second = FLOAT(0), FLOAT(0), FLOAT(0)
            slot = lane
            while slot < EACH:
                at = SLOTS_AT + q * EACH + slot
                its = kept(at) if COUNTS else FLOAT(0)
                count, first, second = combine(count, first, second, its, kept(at + SLOTS), kept(at + 2 * SLOTS))
                slot = int32(slot + 32)
            count, first, second = over_lanes(count, first, second, 32)
            if lane == 0:
                place = PAIRS_AT + 4 * (rank * OF_BLOCK + q)
                if CLUSTER > 1:
                    at = i.shared_memory() + int32(NUMBERS_AT + place * NUMBER)
                    for peer in range(CLUSTER):
                        barrier = i.peer_address(i.shared_memory(), peer)
                        send_pair(i.peer_address(at, peer), first, second, barrier)
                        if COUNTS:
                            send_pair(i.peer_address(at + 2 * NUMBER, peer), count, count, barrier)
                else:
                    keep(place, first)
                    keep(place + 1, second)
                    keep(place + 2, count)
            q = int32(q + WARPS)
        if CLUSTER > 1:
            i.warp_barrier()  # or those that send nothing may spin before the others of their warp send
            i.wait_cluster(i.shared_memory(), 0)
        else:
            wait_for_block()

    @device_function
    def total(q: int) -> Any:
        count, first, second = FLOAT(0), FLOAT(0), FLOAT(0)
        for block in range(CLUSTER):
            at = PAIRS_AT + 4 * (block * OF_BLOCK + q)
            its = kept(at + 2) if COUNTS else FLOAT(0)
            count, first, second = combine(count, first, second, its, kept(at), kept(at + 1))
        return count, first, second

    @device_function
    def keep_group(q: int, first: Any, second: Any) -> None:
        keep(GROUPS_AT + 2 * q, first)
        keep(GROUPS_AT + 2 * q + 1, second)

    @device_function
    def of_group(q: int) -> Any:
        return kept(GROUPS_AT + 2 * q), kept(GROUPS_AT + 2 * q + 1)

    return begin, keep_slot, combine_groups, total, keep_group, of_group
