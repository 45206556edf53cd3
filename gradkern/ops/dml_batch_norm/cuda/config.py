"""Compile-time constants of the planes kernel and of the tiles kernel. Nothing here imports Numba."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.columns import ByElementType, reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.kernels.channels.tiles_config import TilesConfig
from gradkern.kernels.channels.times import SinglePassTimes

ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "X", "mean", "scale", "variance", "dX", "scale_sum", "bias_sum", "partial", "counter"),
    *("count", "length", "channels", "images"),  # elements, of a plane; channels, and planes of each
    *("length_multiplier", "length_shift", "channels_multiplier", "channels_shift"),  # to divide by these two
    "team",  # warps that add up a channel's partial sums
)


@dataclass(frozen=True, slots=True)
class PlanesConfig(ByElementType):
    """Compile-time constants. Everything else is a launch argument."""

    data: str  # type of D, X and dX
    parameter: str  # type of the parameters and of the results of the sums
    outputs: tuple[str, ...]  # dX, scale_sum and perhaps bias_sum
    epsilon: float
    width: int  # elements of a vector
    unroll: int = 4  # vectors that a thread loads at a time
    warps: int = 8
    by_block: bool = False  # a block's tiles extend over at most two planes, too: long planes
    native_bfloat16: bool = True  # compute capability 8.0 or newer
    blocks_per_processor: int = 2

    @property
    def name(self) -> str:
        """In a profiler."""
        return kernel_name("channels_planes", "_".join(self.outputs), self.data, f"{self.piece}")

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def tile(self) -> int:
        """Elements of a warp's tile."""
        return 32 * self.unroll * self.width

    @property
    def piece(self) -> int:
        """Elements with one set of partial sums. They belong to at most two planes, so no plane may be shorter."""
        return self.warps * self.tile if self.by_block else self.tile

    @property
    def sums_at(self) -> int:
        """Address in shared memory, behind the numbers of the next tiles, of the sums of each warp, twice."""
        return 16

    @property
    def shared_bytes(self) -> int:
        return self.sums_at + 2 * self.warps * 4 * self.itemsize

    def blocks(self, count: int) -> int:
        """That have something to do, if each has one tile of each warp."""
        return -(-count // (self.warps * self.tile))

    def partial_bytes(self, count: int) -> int:
        """Scratch memory: for each piece, both sums of two planes."""
        return -(-count // self.piece) * 4 * self.itemsize

    def sizes(self, images: int, channels: int, length: int) -> dict[str, int]:
        """The arguments of a launch that say so."""
        numbers = {"count": images * channels * length, "length": length, "channels": channels, "images": images}
        for name in ("length", "channels"):
            numbers[f"{name}_multiplier"], numbers[f"{name}_shift"] = reciprocal(numbers[name])
        return numbers

    def time(self, count: int, length: int, of: SinglePassTimes) -> float:
        """Predicted microseconds, comparable to the persistent kernel's model."""
        time = of.planes + 3 * count * self.data_itemsize / of.planes_bandwidth
        return time if length % self.width else of.planes_whole * time


@dataclass(frozen=True, slots=True)
class DmlBatchNormConfig(TilesConfig):
    """Of the tiles kernel. The sums are those for the scale and, if requested, the bias."""

    epsilon: float = 0.0
