"""How a kernel of the element-wise block runs, and the configs for a problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gradkern.cuda.device_code.columns import ITEMSIZE

ARGUMENTS = (  # distances of rows are in bytes, `columns` in vectors: multiplier and shift divide by it
    *(f"input_{n}" for n in range(3)),
    *(f"output_{n}" for n in range(3)),
    *(f"number_{n}" for n in range(3)),
    *("size", "columns", "multiplier", "shift"),
    *(f"input_{n}_stride" for n in range(3)),
    *(f"output_{n}_stride" for n in range(3)),
)
SUM_ARGUMENTS = ("parts", "output", "count")  # of the kernel of totals that adds up parts
BITS = "bits"
"""The type of a mask whose element n, in C order, is bit n % 32 of word n / 32, the lowest first."""
VECTOR = 16  # bytes of one access, at most
ARRAYS = 32  # of a launch over several arrays, each with blocks of its own, at most: 129 arguments
_IN_FLIGHT = 32  # bytes of every input that a thread has loaded before it uses the first


@dataclass(frozen=True, slots=True)
class ElementwiseTypes:
    """What an operator's kernel is compiled for, besides its config.

    operator  the contract's name, for the operator's own builder and for the kernel's name
    inputs    types of the arrays that are read, at most three; bool and BITS are 0 or 1 in the type of arithmetic
    outputs   types of the arrays that are written, at most three; bool is true for all but 0
    written   the contract's names of these, where some of the operator's outputs are optional
    numbers   the numbers of a launch, at most three: "" for one that is the argument, else the type of a number in the
              device's memory, whose address is the argument
    rows      the arrays are rows of adjacent elements at distances of their own; else all elements are adjacent
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    written: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    rows: bool = False
    native_bfloat16: bool = True  # compute capability 8.0 and newer convert to bfloat16 themselves

    @property
    def compute(self) -> str:
        """The type of arithmetic."""
        return "float64" if "float64" in (*self.inputs, *self.outputs) else "float32"


@dataclass(frozen=True, slots=True)
class ElementwiseConfig:
    """width: elements of a vector; vectors: of a thread, all in flight at once; threads: of a block."""

    width: int
    vectors: int
    threads: int
    blocks_per_processor: int = 1
    shared_bytes: int = 0

    @property
    def name(self) -> str:
        return f"elementwise_{self.threads}x{self.vectors}x{self.width}"

    @property
    def block(self) -> int:
        """Elements of a block."""
        return self.width * self.vectors * self.threads


@dataclass(frozen=True, slots=True)
class TotalsConfig:
    """input: the array's type; width: elements of a vector; vectors: of a thread in flight; threads: of a block."""

    input: str
    width: int
    vectors: int = 4
    threads: int = 256

    @property
    def name(self) -> str:
        return f"totals_{self.threads}x{self.vectors}x{self.width}"


def configs(types: ElementwiseTypes, most: int) -> Iterator[ElementwiseConfig]:
    """The configs for vectors of at most so many elements, a power of two, best first: as wide as may be."""
    widest = max(ITEMSIZE[each] for each in (*types.inputs, *types.outputs) if each != BITS)
    width = max(1, min(most, VECTOR // widest))
    vectors = max(1, _IN_FLIGHT // (width * widest))
    yield from (ElementwiseConfig(width, each, 256) for each in dict.fromkeys((vectors, 1)))


def widest_vector(places: Sequence[tuple[str, int, int]], columns: int = 0) -> int:
    """The most elements of a vector, a power of two, of arrays of these types, least alignments and distances of rows,
    with `columns` elements each; 0: there are no rows.
    """
    widths = [((at | distance) & -(at | distance)) // ITEMSIZE[kind] for kind, at, distance in places]
    return max(1, min(VECTOR, *widths, *([columns & -columns] if columns else ())))


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
