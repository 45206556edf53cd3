"""The constants one compiled kernel of im2col or col2im is made for. Nothing here imports Numba, nothing the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.kernel_name import kernel_name

__all__ = ["Im2colConfig"]


@dataclass(frozen=True, slots=True)
class Im2colConfig:
    """All that is bound when a kernel is compiled."""

    kernel: Literal["gather", "scatter", "pack", "add_shares", "col2im"]
    word: str  # the type that is loaded: the data's own, or float32 for the bytes of several elements
    words: int = 1  # of one access
    vector_channels: int = 1
    lanes: Literal["positions", "channels"] = "positions"
    grouped: bool = False  # channels of the matrix lie at one distance only within a group
    wide: bool = False  # counts need 64 bits
    result: str = ""  # the type that is stored, where it is another
    walkers: int = 1
    taps_inside: bool = True
    native_bfloat16: bool = True
    threads: int = 256
    at_once: int = 8  # loads a thread has under way
    chunk: int = 16  # channels of a thread that has one position
    blocks_per_processor: int = 4

    @property
    def name(self) -> str:
        """In a profiler."""
        return kernel_name("conv", self.kernel, self.word, self.lanes)

    @property
    def vector_bytes(self) -> int:
        return self.words * ITEMSIZE[self.word]

    @property
    def result_itemsize(self) -> int:
        return ITEMSIZE[self.result]

    @property
    def shared_bytes(self) -> int:
        return self.threads * ITEMSIZE[self.word] if self.walkers > 1 else 0
