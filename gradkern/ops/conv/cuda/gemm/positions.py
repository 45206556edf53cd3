"""Device functions that count positions: of a block's threads, and of grids with three axes in row-major order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import int64

from gradkern.cuda.device_code.function import device_function


@device_function
def offset(x: Any, strides: Any) -> int:
    """Bytes from the first element to element x."""
    return x[0] * strides[0] + x[1] * strides[1] + x[2] * strides[2]


def positions(INDEX: Any, threads: int) -> tuple[Callable[..., Any], ...]:
    """Three device functions that compute in the type INDEX: 32 bits if counts fit, as there is no division instruction
    and 64-bit divisions take several times as many instructions.

    own(blocks)   of this thread: the chunk of channels that its block has, and its number among the threads of the
                  `blocks` blocks with that chunk
    divided(number, size)   number // size and number % size
    unravelled(p, rows, columns)   the three indices of position p in a grid of so many rows and columns
    """
    THREADS = threads

    @device_function
    def own(blocks: int) -> tuple[int, int]:
        chunk = INDEX(INDEX(cuda.blockIdx.x) // INDEX(blocks))
        return chunk, INDEX(INDEX(INDEX(cuda.blockIdx.x) - chunk * INDEX(blocks)) * THREADS + INDEX(cuda.threadIdx.x))

    @device_function
    def divided(number: int, size: int) -> tuple[int, int]:
        quotient = INDEX(number // INDEX(size))
        return quotient, INDEX(number - quotient * INDEX(size))

    @device_function
    def unravelled(p: int, rows: int, columns: int) -> tuple[int, int, int]:
        rest, q2 = divided(p, columns)
        q0, q1 = divided(rest, rows)
        return q0, q1, q2

    return own, divided, unravelled


def rows_of(INDEX: Any, grouped: bool) -> tuple[Callable[..., int], Callable[..., int]]:
    """Two device functions that find a channel in a column of a matrix, in bytes. groups: the channels of a group, and
    the distances of groups and of channels in a group.

    start_of(first, groups)    where channel `first` is, if channels of all groups are equidistant; else 0
    row_of(first, n, groups)   from there to the n-th channel after `first`
    """
    GROUPED = grouped

    @device_function
    def start_of(first: int, groups: Any) -> int:
        return int64(0) if GROUPED else first * groups[2]

    @device_function
    def row_of(first: int, n: int, groups: Any) -> int:
        group_channels, matrix_group, matrix_channel = groups
        if not GROUPED:
            return n * matrix_channel
        c = INDEX(first + n)
        group = INDEX(c // INDEX(group_channels))
        return c * matrix_channel + group * (matrix_group - group_channels * matrix_channel)

    return start_of, row_of
