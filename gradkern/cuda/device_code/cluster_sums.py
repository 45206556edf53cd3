"""Sums over the blocks of a cluster: each block sends a pair for every place, and the first block adds them.

They use shared memory only, and no block waits for blocks of other clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function


def cluster_sums(
    compute: str, blocks: int, places: int, barrier_at: int, pairs_at: int
) -> tuple[Callable[..., Any], ...]:
    """Five device functions, for clusters of `blocks` blocks and for `places` places:

    begin()                             all threads of every block: initialises the barrier
    expect(block)                       all threads, later: waits until all blocks have called `begin`
    send(block, place, first, second)   one thread for each place; block: the sender's rank in the cluster
    wait()                              threads of the first block, before they call `total`
    total(place, part)                  the sum of all blocks' first (part 0) or second (part 1), in the order of blocks

    Shared memory: 8 bytes at `barrier_at`, and blocks * places pairs of type `compute` at `pairs_at`.
    """
    DOUBLE, ITEM = compute == "float64", ITEMSIZE[compute]
    PAIR, FLOAT = 2 * ITEM, float64 if DOUBLE else float32
    load_one = i.loader("shared", compute, 1)
    send_pair = i.send_pair_double if DOUBLE else i.send_pair

    @device_function
    def begin() -> None:
        if cuda.threadIdx.x == 0:
            i.transaction_barrier_init(i.shared_memory() + barrier_at, 1)
            i.transaction_barrier_fence()
        i.cluster_arrive()

    @device_function
    def expect(block: int) -> None:
        i.cluster_wait()
        if cuda.threadIdx.x == 0 and block == 0:
            i.arrive_and_expect(i.shared_memory() + barrier_at, blocks * places * PAIR)

    @device_function
    def send(block: int, place: int, first: Any, second: Any) -> None:
        to = i.shared_memory() + int32(pairs_at + (block * places + place) * PAIR)
        send_pair(i.peer_address(to, 0), first, second, i.peer_address(i.shared_memory() + barrier_at, 0))

    @device_function
    def wait() -> None:
        i.wait_cluster(i.shared_memory() + barrier_at, 0)

    @device_function
    def total(place: int, part: int) -> Any:
        one, value = cuda.local.array(1, FLOAT), FLOAT(0)
        for block in range(blocks):
            load_one(one, i.shared_memory() + int32(pairs_at + (block * places + place) * PAIR + part * ITEM))
            value += one[0]
        return value

    return begin, expect, send, wait, total
