"""How a kernel of the element-wise block runs, and the configs for a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradkern.cuda.device_code.columns import ITEMSIZE

__all__ = ["ElementwiseConfig", "ElementwiseTypes", "configs"]

VECTOR = 16  # bytes of one access, at most
_IN_FLIGHT = 32  # bytes of every input that a thread has loaded before it uses the first


@dataclass(frozen=True, slots=True)
class ElementwiseTypes:
    """What an operator's kernel is compiled for, besides its config.

    operator  the contract's name, for the operator's own builder and for the kernel's name
    inputs    types of the arrays that are read, at most three
    output    the type of the array that is written
    numbers   the operator's attributes that its arithmetic takes, as constants
    """

    operator: str
    inputs: tuple[str, ...]
    output: str
    numbers: tuple[float, ...] = ()
    native_bfloat16: bool = True  # compute capability 8.0 and newer convert to bfloat16 themselves

    @property
    def compute(self) -> str:
        """The type of arithmetic."""
        return "float64" if self.output == "float64" else "float32"


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


def configs(types: ElementwiseTypes, alignment: int) -> Iterator[ElementwiseConfig]:
    """The configs for arrays of this least alignment in bytes, best first: whole vectors as wide as it allows."""
    widest = max(ITEMSIZE[each] for each in (*types.inputs, types.output))
    width = max(1, min(alignment, VECTOR) // widest)
    vectors = max(1, _IN_FLIGHT // (width * widest))
    yield from (ElementwiseConfig(width, each, 256) for each in dict.fromkeys((vectors, 1)))
