"""The end of a kernel of a depthwise convolution's dW: the partial sums of all blocks become the gradient."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda import intrinsics as i
from gradkern.cuda.columns import ITEMSIZE
from gradkern.cuda.column_sums import wait_for_grid

__all__ = ["sums_over_blocks"]

inline = cuda.jit(device=True, inline="always")


def sums_over_blocks(
    threads: int, channels: int, taps: tuple[int, int], strides: tuple[int, int, int], dtype: str, native_bfloat16: bool
) -> Callable[..., None]:
    """add(filters, partial, counter, chunks, thread, shared): dW from `chunks` rows of partial sums, once all blocks
    of a cooperative launch have called it.

    A row of partial sums has every tap of every channel; strides are those of dW, in bytes. The order of all additions
    is fixed. shared: the address of 8 bytes for each thread.
    """
    THREADS, TAPS, COLUMN_TAPS, ALL_TAPS = threads, taps[0] * taps[1], taps[1], channels * taps[0] * taps[1]
    FILTER_CHANNEL, FILTER_ROW, FILTER_COLUMN = strides
    COLUMNS = min(8, threads)  # of a row of partial sums, read side by side
    READERS = threads // COLUMNS
    compute = "float64" if dtype == "float64" else "float32"
    SUM, FLOAT = ITEMSIZE[compute], float64 if compute == "float64" else float32
    store_filter = i.storer("global", dtype, 1, native_bfloat16)
    load_sum, store_sum = i.loader("shared", compute, 1), i.storer("shared", compute, 1)
    load_partial = i.loader("global", compute, 1)

    @inline
    def add(filters: int, partial: int, counter: int, chunks: int, thread: int, shared: int) -> None:
        one, ahead = cuda.local.array(1, FLOAT), cuda.local.array(4, FLOAT)
        wait_for_grid(counter)
        reader = int32(thread // COLUMNS)
        number = int32(cuda.blockIdx.x * COLUMNS + thread % COLUMNS)
        while number - thread % COLUMNS < ALL_TAPS:
            total = FLOAT(0)
            from_row = i.unseen(reader)
            at = partial + int64(min(number, ALL_TAPS - 1)) * SUM
            while from_row < chunks and reader < READERS:
                for n in range(4):  # independent loads, so that their latencies overlap
                    row = min(int32(from_row + n * READERS), int32(chunks - 1))
                    load_partial(one, at + int64(row) * (ALL_TAPS * SUM))
                    ahead[n] = one[0]
                for n in range(4):
                    if from_row + n * READERS < chunks:
                        total += ahead[n]
                from_row = i.unseen(from_row + 4 * READERS)
            one[0] = total
            store_sum(shared + thread * SUM, one)
            cuda.syncthreads()
            if thread < COLUMNS and number < ALL_TAPS:
                total = FLOAT(0)
                for other in range(READERS):
                    load_sum(one, shared + (thread + other * COLUMNS) * SUM)
                    total += one[0]
                one[0] = total
                channel, tap = int32(number // TAPS), int32(number % TAPS)
                place = int64(channel) * FILTER_CHANNEL
                store_filter(
                    filters + place + (tap // COLUMN_TAPS) * FILTER_ROW + (tap % COLUMN_TAPS) * FILTER_COLUMN, one
                )
            cuda.syncthreads()
            number = int32(number + cuda.gridDim.x * COLUMNS)

    return add
