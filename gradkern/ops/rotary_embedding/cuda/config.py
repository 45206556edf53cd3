"""What the kernel of rotary embeddings is compiled for, and its arguments."""

from __future__ import annotations

from dataclasses import dataclass

ARGUMENTS = (
    *("X", "cos", "sin", "positions", "Y", "rows", "inner", "middle", "last"),
    *(f"{name}_{axis}" for name in ("x", "y", "cos", "sin", "place") for axis in (0, 1, 2)),
)


@dataclass(frozen=True, slots=True)
class RotaryConfig:
    """What the kernel is compiled for. Strides of rows are in bytes, of three axes, slowest first.

    indexed      lines of the cache are those of position_ids
    half         pairs of a row; rest: elements behind them
    width        elements of a vector, of half a row and of the rest; threads: of a block, whole rows
    """

    data: str
    cache: str
    indexed: bool
    backward: bool
    interleaved: bool
    half: int
    rest: int
    width: int
    threads: int
    native_bfloat16: bool = True
    shared_bytes: int = 0
    blocks_per_processor: int = 1

    @property
    def lanes(self) -> int:
        """Threads of a row."""
        return min(self.half // self.width or 1, self.threads)

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.threads // self.lanes

    @property
    def name(self) -> str:
        words = (self.data, f"{self.half}x{self.width}", f"rest{self.rest}" * (self.rest > 0))
        way = "rotary_embedding_grad" if self.backward else "rotary_embedding"
        return "_".join(["gradkern", way, *(each for each in words if each)])
