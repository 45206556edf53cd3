"""What is bound when the planes kernel is compiled, and how long it should take. Nothing here imports Numba."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.columns import ITEMSIZE, reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name

__all__ = ["ARGUMENTS", "PlanesConfig"]

ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "X", "mean", "scale", "variance", "dX", "scale_sum", "bias_sum", "partial", "counter"),
    *("count", "length", "channels", "images"),  # elements, of a plane; channels, and planes of each
    *("length_multiplier", "length_shift", "channels_multiplier", "channels_shift"),  # to divide by these two
    "team",  # warps that add up a channel's partial sums
)
# What it takes, in microseconds and bytes: fitted to an H200's times (cold L2) of 36 arrays of 4 to 860 MB with a
# config before this one. The persistent kernel's model is about so many times too slow for planes of whole vectors. Of
# both kernels, the choice was 0.1 % slower than the better one on average then, and 1.6 % at worst. Of this config 15
# random arrays of 10 to 790 MB are 2 % off in the median, and 11 % at most.
_LAUNCH, _BANDWIDTH, _PERSISTENT_WHOLE = 8.0, 4.25e6, 1.08


@dataclass(frozen=True, slots=True)
class PlanesConfig:
    """All that is bound when the kernel is compiled. Everything else is an argument of the launch."""

    data: str  # type of D, X and dX
    parameter: str  # of the channels' numbers and the results of the sums
    outputs: tuple[str, ...]  # dX, scale_sum and perhaps bias_sum
    epsilon: float
    width: int  # elements of a vector
    unroll: int = 4  # vectors of a thread, all on their way at once
    warps: int = 8
    by_block: bool = False  # planes are so long that what a block has at a time lies in two of them, too
    native_bfloat16: bool = True  # compute capability 8.0 or newer
    blocks_per_processor: int = 2

    @property
    def name(self) -> str:
        """In a profiler."""
        return kernel_name("channels_planes", "_".join(self.outputs), self.data, f"{self.piece}")

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.data == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        """Of the type of arithmetic."""
        return ITEMSIZE[self.compute]

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def tile(self) -> int:
        """Elements that a warp has at a time."""
        return 32 * self.unroll * self.width

    @property
    def piece(self) -> int:
        """Elements that leave one set of partial sums: of two planes at most, so no plane may be shorter."""
        return self.warps * self.tile if self.by_block else self.tile

    @property
    def sums_at(self) -> int:
        """In shared memory, behind the numbers of the next tiles: what each warp has added up, twice."""
        return 16

    @property
    def shared_bytes(self) -> int:
        return self.sums_at + 2 * self.warps * 4 * self.itemsize

    def blocks(self, count: int) -> int:
        """That have something to do, if each has one tile of each warp."""
        return -(-count // (self.warps * self.tile))

    def partial_bytes(self, count: int) -> int:
        """Scratch memory: of each piece, the two sums of both planes."""
        return -(-count // self.piece) * 4 * self.itemsize

    def sizes(self, images: int, channels: int, length: int) -> dict[str, int]:
        """The arguments of a launch that say so."""
        numbers = {"count": images * channels * length, "length": length, "channels": channels, "images": images}
        for name in ("length", "channels"):
            numbers[f"{name}_multiplier"], numbers[f"{name}_shift"] = reciprocal(numbers[name])
        return numbers

    def time(self, count: int, length: int) -> float:
        """Microseconds that it should take; for a comparison with the persistent kernel's model."""
        time = _LAUNCH + 3 * count * ITEMSIZE[self.data] / _BANDWIDTH
        return time if length % self.width else _PERSISTENT_WHOLE * time
