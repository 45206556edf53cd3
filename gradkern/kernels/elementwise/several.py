"""Launches over several arrays, each with blocks of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from numba.cuda import int64

from gradkern.cuda.device_code.function import device_function

__all__ = ["ARRAYS", "arguments_of", "array_of_block", "numbers_of"]

ARRAYS = 32  # of a launch, at most: 129 arguments


def arguments_of(first: str, arrays: int, outputs: bool = False) -> tuple[str, ...]:
    """The names of a kernel's arguments: `first`, then of each array its address, with `outputs` that of its output,
    its elements, and the number of the first block that is not its own.
    """
    names = ("input", *["output"] * outputs, "size", "end")
    return (first, *(f"{each}_{n}" for n in range(arrays) for each in names))


def numbers_of(sizes: Sequence[int], blocks: Sequence[int], arrays: int) -> dict[str, int]:
    """The arguments that are no addresses, for arrays of these sizes and with so many blocks."""
    ends = list(accumulate(blocks))
    numbers = {f"size_{n}": size for n, size in enumerate(sizes)}
    return numbers | {f"end_{n}": ends[min(n, len(ends) - 1)] for n in range(arrays)}


def array_of_block(arrays: int, outputs: bool = False, first: int = 0) -> Callable[[Any, Any], Any]:
    """A device function of a block's number and the arguments of the arrays: the address, the output's address and the
    size of the block's array, its first block and the one behind its last.
    """
    FIELDS = 3 + outputs
    INPUT, OUTPUT = FIELDS * first, FIELDS * first + outputs
    SIZE, END, BEFORE = FIELDS * first + 1 + outputs, FIELDS * first + 2 + outputs, FIELDS * first - 1
    FIRST, LAST = first == 0, first == arrays - 1
    rest: Any = None if LAST else array_of_block(arrays, outputs, first + 1)

    @device_function
    def find(block: Any, of_arrays: Any) -> Any:
        begin = int64(0) if FIRST else of_arrays[BEFORE]
        if LAST:
            return of_arrays[INPUT], of_arrays[OUTPUT], of_arrays[SIZE], begin, of_arrays[END]
        if block < of_arrays[END]:
            return of_arrays[INPUT], of_arrays[OUTPUT], of_arrays[SIZE], begin, of_arrays[END]
        return rest(block, of_arrays)

    return find
