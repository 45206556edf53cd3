"""Compile-time constants of the im2col and col2im kernels. Nothing here imports Numba or the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.kernel_name import kernel_name


@dataclass(frozen=True, slots=True)
class Im2colConfig:
    """Compile-time constants."""

    kernel: Literal["gather", "pack", "add_shares", "col2im"]
    word: str  # type of loads
    grouped: bool = False  # channels of the matrix are equidistant only within a group
    wide: bool = False  # counts need 64 bits
    result: str = ""  # type of stores, if it differs
    single: bool = False  # of col2im: each element is one product or zero
    walkers: int = 1
    taps_inside: bool = True
    native_bfloat16: bool = True
    threads: int = 256
    at_once: int = 8  # loads in flight of a thread
    chunk: int = 16  # channels of a thread with one position
    blocks_per_processor: int = 4

    @property
    def name(self) -> str:
        """In a profiler."""
        return kernel_name("conv", self.kernel, self.word)

    @property
    def shared_bytes(self) -> int:
        return self.threads * ITEMSIZE[self.word] if self.walkers > 1 else 0
