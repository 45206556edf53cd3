"""Barriers of the threads of a block and of the blocks of a grid, and tickets for the blocks of a grid.

A stream's counter has a word for barriers, which keep a bit in it, and a word for tickets, which is 0 between launches.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function

TICKETS = 128  # bytes from the word of barriers to that of tickets: another line of memory


@device_function
def wait_for_block() -> None:
    """Wait for all threads of the block.

    A warp barrier precedes the block barrier because of ptxas: it assumes that warps are converged at a block barrier,
    and does not reconverge them (no BSSY and BSYNC) after a branch or a loop that threads leave one by one. With CUDA
    13.0 a warp arrived in two parts. Both were counted, so other warps passed this barrier and later ones too early
    (compute-sanitizer's synccheck: "divergent thread(s) in warp").
    """
    i.warp_barrier()
    cuda.syncthreads()


@device_function
def wait_for_grid(counter: int) -> None:
    """Wait for all threads of all blocks. Their earlier writes are visible afterwards.

    The first block flips the counter's top bit when every other block has added one. The counter is then ready for the
    next barrier, of any grid.
    """
    wait_for_block()  # thread 0's arrival releases the writes of all threads of the block
    if cuda.threadIdx.x == 0:
        amount = int64(1)
        if cuda.blockIdx.x == 0:
            amount = int64(2147483648) - (cuda.gridDim.x - 1)
        i.grid_wait(counter, i.grid_arrive(counter, amount))
    wait_for_block()


@device_function
def take_ticket(counter: int) -> Any:
    """How many were taken before, since the last `clear_tickets`."""
    return i.take(counter + TICKETS)


@device_function
def clear_tickets(counter: int) -> None:
    """By one thread, when no block takes any more."""
    i.clear(counter + TICKETS)
