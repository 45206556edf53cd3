"""Barriers of the threads of a block and of the blocks of a grid."""

from __future__ import annotations

from numba import cuda
from numba.cuda import int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function


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
