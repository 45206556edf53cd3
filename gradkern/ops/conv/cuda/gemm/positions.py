"""Device functions that count positions: of a block's threads, and of grids with three axes in row-major order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda

from gradkern.cuda.device_code.function import device_function

__all__ = ["offset", "positions"]


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
