"""The simulator's threads: a barrier too few or too many shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from helpers import simulated
from numba import cuda
from numba.cuda import int32

from gradkern.cuda.device_code import intrinsics as i

THREADS, GRID = 64, 3


def neighbours(barrier: str) -> Callable[..., None]:
    """Each thread writes its number to shared memory and gives its neighbour's, in its warp, its block or the grid."""
    SYNC, WARP, TEAM, CLUSTER = (barrier == name for name in ("block", "warp", "team", "cluster"))

    def kernel(target: int) -> None:
        thread = int32(cuda.threadIdx.x)
        shared = i.shared_memory()
        i.store_word(shared + 4 * thread, thread)
        if SYNC:
            cuda.syncthreads()
        if WARP:
            i.warp_barrier()
        if TEAM:
            i.named_barrier(1 + thread // 32, 32)
        if CLUSTER:
            i.cluster_barrier()
        other = thread // 32 * 32 + (thread + 1) % 32
        i.store_word(target + 4 * (cuda.blockIdx.x * THREADS + thread), i.load_word(shared + 4 * other))

    return kernel


@pytest.mark.parametrize("barrier", ["block", "warp", "team", "cluster", "none"])
def test_a_barrier_too_few_is_a_wrong_result(barrier: str) -> None:
    found = np.full((GRID, THREADS), -1, np.int32)
    simulated.launch(neighbours(barrier), GRID, THREADS, 1, 4 * THREADS, (np.int64(found.ctypes.data),))
    expected = [thread // 32 * 32 + (thread + 1) % 32 for thread in range(THREADS)]
    assert [(row == expected).all() for row in found] == [barrier != "none"] * GRID


def two_arrays_of_a_line(target: int) -> None:
    first, second = cuda.shared.array(THREADS, int32), cuda.shared.array(THREADS, int32)
    thread = int32(cuda.threadIdx.x)
    first[thread], second[thread] = thread, -1
    cuda.syncthreads()
    i.store_word(target + 4 * (cuda.blockIdx.x * THREADS + thread), first[THREADS - 1 - thread])


def test_shared_arrays_that_are_made_in_one_line_are_two() -> None:
    found = np.full((GRID, THREADS), -1, np.int32)
    simulated.launch(two_arrays_of_a_line, GRID, THREADS, 1, 0, (np.int64(found.ctypes.data),))
    np.testing.assert_array_equal(found, np.broadcast_to(np.arange(THREADS)[::-1], found.shape))


def passed_by_some(_: int) -> None:
    if cuda.threadIdx.x < 60:
        cuda.syncthreads()


def wrong_parity(_: int) -> None:
    barrier = i.shared_memory()
    if cuda.threadIdx.x == 0:
        i.transaction_barrier_init(barrier, 1)
        i.arrive_and_expect(barrier, 0)
    cuda.syncthreads()
    i.wait(barrier, 1)


def never_all_blocks(counter: int) -> None:
    if cuda.threadIdx.x == 0:
        i.grid_wait(counter, i.grid_arrive(counter, 1))


@pytest.mark.parametrize(
    ("kernel", "waiting"),
    [
        (passed_by_some, "180 threads wait for ever: block 0: the block's barrier; block 1: the block's barrier; "),
        (wrong_parity, "192 threads wait for ever: block 0: the transaction barrier at 0; block 1: "),
        (never_all_blocks, "3 threads wait for ever: block 0: a counter in global memory; block 1: "),
    ],
)
def test_threads_that_wait_for_ever_are_an_error(kernel: Callable[..., None], waiting: str) -> None:
    counter = np.zeros(1, np.uint32)
    with pytest.raises(RuntimeError) as raised:
        simulated.launch(kernel, GRID, THREADS, 1, 128, (np.int64(counter.ctypes.data),))
    assert str(raised.value).startswith(waiting)


def test_an_error_says_in_which_thread_it_was() -> None:
    def kernel(address: int) -> None:
        if cuda.threadIdx.x == 40 and cuda.blockIdx.x == 2:
            i.async_copy(16)(address, address + 1)

    with pytest.raises(ValueError, match="misaligned") as raised:
        simulated.launch(kernel, GRID, THREADS, 1, 0, (np.int64(1 << 20),))
    assert raised.value.__notes__ == ["in thread 40 of block 2"]


@pytest.mark.parametrize("size", [64, 72])
def test_a_write_beyond_shared_memory_is_an_error(size: int) -> None:
    zeros = i.storer("shared", "float32", 4)

    def kernel(values: np.ndarray) -> None:
        if cuda.threadIdx.x < 5:
            zeros(i.shared_memory() + cuda.threadIdx.x * 16, values)

    with pytest.raises(RuntimeError, match="block 0 wrote byte 0 after its shared memory"):
        simulated.launch(kernel, 1, THREADS, 1, size, (np.zeros(4, np.float32),))
    simulated.launch(kernel, 1, THREADS, 1, 80, (np.zeros(4, np.float32),))
