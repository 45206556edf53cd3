"""The arguments of launches over several arrays, each with blocks of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

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
