"""The end of a depthwise dW kernel: adds the partial sums of all blocks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block, wait_for_grid
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function

IN_FLIGHT = 8  # loads of one thread at a time


def sums_over_blocks(
    threads: int,
    channels: int,
    taps: tuple[int, int, int],
    strides: tuple[int, int, int, int],
    dtype: str,
    native_bfloat16: bool,
) -> Callable[..., None]:
    """add(filters, partial, counter, chunks, thread, shared): computes dW from `chunks` rows of partial sums. All
    blocks of a cooperative launch call it.

    A row of partial sums has every tap of every channel, along depth, rows and columns; strides are those of dW, in
    bytes, from channel to channel first. The order of all additions depends on the grid alone. shared: the address of
    8 bytes for each thread.
    """
    THREADS, TAPS, PLANE_TAPS, COLUMN_TAPS = threads, prod(taps), taps[1] * taps[2], taps[2]
    ALL_TAPS = channels * TAPS
    FILTER_CHANNEL, FILTER_DEPTH, FILTER_ROW, FILTER_COLUMN = strides
    compute = "float64" if dtype == "float64" else "float32"
    SUM, FLOAT = ITEMSIZE[compute], float64 if compute == "float64" else float32
    store_filter = i.storer("global", dtype, 1, native_bfloat16)
    load_sum, store_sum = i.loader("shared", compute, 1), i.storer("shared", compute, 1)
    load_partial = i.loader("global", compute, 1)

    @device_function
    def add(filters: int, partial: int, counter: int, chunks: int, thread: int, shared: int) -> None:
        one, loaded = cuda.local.array(1, FLOAT), cuda.local.array(IN_FLIGHT, FLOAT)
        wait_for_grid(counter)
        # all blocks together cover all columns, if there are enough threads; the threads of a column share its rows
        blocks = int32(cuda.gridDim.x)
        columns = min(i.quotient(int32(ALL_TAPS + blocks - 1), blocks), int32(THREADS))
        readers = i.quotient(int32(THREADS), columns)
        reader = i.quotient(thread, columns)
        column = int32(thread - reader * columns)
        first = int32(cuda.blockIdx.x * columns)
        while first < ALL_TAPS:
            number = int32(first + column)
            total = FLOAT(0)
            from_row = i.opaque(reader)
            at = partial + int64(min(number, ALL_TAPS - 1)) * SUM
            while from_row < chunks and reader < readers:
                for n in range(IN_FLIGHT):  # independent loads, so that their latencies overlap
                    row = min(int32(from_row + n * readers), int32(chunks - 1))
                    load_partial(one, at + int64(row) * (ALL_TAPS * SUM))
                    loaded[n] = one[0]
                for n in range(IN_FLIGHT):
                    if from_row + n * readers < chunks:
                        total += loaded[n]
                from_row = i.opaque(from_row + IN_FLIGHT * readers)
            one[0] = total
            store_sum(shared + thread * SUM, one)
            wait_for_block()
            if thread < columns and number < ALL_TAPS:
                total = FLOAT(0)
                other = i.opaque(thread)
                while other < readers * columns:
                    load_sum(one, shared + other * SUM)
                    total += one[0]
                    other = i.opaque(other + columns)
                one[0] = total
                channel = i.quotient(number, int32(TAPS))
                tap = int32(number - channel * TAPS)
                place = int64(channel) * FILTER_CHANNEL
                if PLANE_TAPS < TAPS:
                    plane = i.quotient(tap, int32(PLANE_TAPS))
                    tap = int32(tap - plane * PLANE_TAPS)
                    place += int64(plane) * FILTER_DEPTH
                row = i.quotient(tap, int32(COLUMN_TAPS))
                place += int64(row) * FILTER_ROW
                store_filter(filters + place + int64(tap - row * COLUMN_TAPS) * FILTER_COLUMN, one)
            wait_for_block()
            first = int32(first + blocks * columns)

    return add
