"""Where the threads of a block wait for each other, and the blocks of a grid."""

from __future__ import annotations

from numba import cuda
from numba.cuda import int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function


@device_function
def wait_for_block() -> None:
    """Wait until all threads of the block are here.

    The warp's barrier comes first, for ptxas: the block's alone it takes for a promise that the warp is whole, and
    behind a branch, or a loop that threads leave one by one, it makes nothing that brings them together (no BSSY and
    BSYNC). With CUDA 13.0 a warp came in two parts, each of which counted, and others passed this barrier and those
    after it without it (compute-sanitizer's synccheck: "divergent thread(s) in warp").
    """
    i.warp_barrier()
    cuda.syncthreads()


@device_function
def wait_for_grid(counter: int) -> None:
    """Wait until all threads of all blocks are here; what they have written can be read then.

    The first block turns the counter's top bit once every other has added one: so it is ready for the next time, of
    any grid.
    """
    wait_for_block()  # thread 0's arrival releases what all threads of the block have written
    if cuda.threadIdx.x == 0:
        amount = int64(1)
        if cuda.blockIdx.x == 0:
            amount = int64(2147483648) - (cuda.gridDim.x - 1)
        i.grid_wait(counter, i.grid_arrive(counter, amount))
    wait_for_block()
