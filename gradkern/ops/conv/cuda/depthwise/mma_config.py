"""Compile-time constants of a depthwise dW kernel on tensor cores, and its layout of shared memory.

Images are stacked to one tall image with rows of zeros between them; narrow images are also side by side. A block
processes some channels of a run of the tall image's rows, a few rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.device_code.kernel_name import kernel_name

__all__ = [
    "BANKS",
    "BLOCK",
    "OCTET",
    "SLOTS",
    "STAGES",
    "STEP_ROWS",
    "WARP_CHANNELS",
    "WINDOW",
    "MmaConfig",
    "OfChannels",
    "period",
    "steps",
]

WARP_CHANNELS = 2  # of one warp, with their sums in its registers
STEP_ROWS = 4  # of dY, between two barriers
STAGES = 2  # steps with copies in flight
BANKS = 32  # of shared memory, each a word wide
OCTET = 8  # channels of one access of 16 bytes
SLOTS = 8  # blocks of BLOCK columns of dY in one matrix product
BLOCK, WINDOW = 8, 16  # columns of dY and of X in one matrix product
_MOST_PRODUCTS = 512  # in one sum: tensor cores truncate instead of rounding


class OfChannels:
    """Properties that follow from the channels of a block, shared with mma_output_config."""

    total_channels: int
    channels: int

    @property
    def threads(self) -> int:
        return self.channels // WARP_CHANNELS * 32

    @property
    def octets(self) -> int:
        return self.channels // OCTET

    @property
    def groups(self) -> int:
        return -(-self.total_channels // self.channels)

    @property
    def octet_pad(self) -> int:
        """Words of padding between octets of channels, to avoid bank conflicts of stores."""
        return BANKS // self.octets

    @property
    def raw_bytes(self) -> int:
        """Bytes of copies in flight: four vectors a stage and thread."""
        return STAGES * self.threads * 64


def period(source: int, grid: int, taps: int, begin: int, step: int) -> int:
    """Rows from one image to the next below it: enough that no row of the convolution's output (or of dX) needs rows of
    another image, and no fewer than a step has.
    """
    return max(source + begin, grid - 1 + taps - begin, grid, step)


def steps(images: int, sides: int, period: int, grid: int, step: int) -> int:
    """Number of rows of all images, `sides` of them side by side."""
    stacks = -(-images // sides)
    return -(-((stacks - 1) * period + grid) // step)


@dataclass(frozen=True)
class MmaConfig(OfChannels):
    """Sizes are (rows, columns), strides of arrays in bytes: from image to image, row to row and column to column.

    channels  of a block
    """

    dtype: str
    total_channels: int
    channels: int
    X: tuple[int, int]
    dY: tuple[int, int]
    taps: tuple[int, int]
    begins: tuple[int, int]
    X_strides: tuple[int, int, int]
    dY_strides: tuple[int, int, int]
    dW_strides: tuple[int, int, int]
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        taps = f"{self.taps[0]}x{self.taps[1]}"
        return kernel_name("conv_depthwise_mma_dW", self.dtype, self.total_channels, taps)

    @property
    def all_taps(self) -> int:
        return self.taps[0] * self.taps[1]

    @property
    def weights(self) -> int:
        """Elements of dW."""
        return self.total_channels * self.all_taps

    @property
    def blocks(self) -> int:
        """Blocks of columns in a row of dY."""
        return -(-self.dY[1] // BLOCK)

    @property
    def sides(self) -> int:
        """Images side by side."""
        return SLOTS // self.blocks

    @property
    def period(self) -> int:
        """Rows from one image to the next below it."""
        return period(self.X[0], self.dY[0], self.taps[0], self.begins[0], STEP_ROWS)

    @property
    def pairs(self) -> int:
        """Of rows of X, that a pair of rows of dY meets."""
        return self.taps[0] // 2 + 1

    @property
    def ahead(self) -> int:
        """The first row of X in the step of the first row of dY: the last pair that it needs."""
        return 2 * (self.pairs - 1) - self.begins[0]

    @property
    def warm_steps(self) -> int:
        """Steps before a block's first, for earlier pairs of X."""
        return -(-(self.pairs - 1) * 2 // STEP_ROWS)

    def steps(self, images: int) -> int:
        """Of all images."""
        return steps(images, self.sides, self.period, self.dY[0], STEP_ROWS)

    def chunks(self, images: int, blocks: int) -> int:
        """The number of runs of steps, for this many blocks and `groups` groups of channels."""
        steps = self.steps(images)
        rounds = -(-steps * STEP_ROWS // 2 // (blocks // self.groups * _MOST_PRODUCTS))
        share = -(-steps // (rounds * (blocks // self.groups)))
        return -(-steps // share)

    # Arrays in shared memory, in words of two rows: channel | pair of rows | image at a side | column
    @property
    def lead(self) -> int:
        """Columns before X's first, an even number of them."""
        return round_up(self.begins[1], 2)

    @property
    def X_side(self) -> int:
        """Words from side to side of X, without bank conflicts among the blocks that a warp reads together."""
        read = BLOCK * (self.blocks - 1) + WINDOW + self.lead - self.begins[1]
        return _apart(round_up(max(read, self.lead + round_up(self.X[1], 2)), 2), self.blocks)

    @property
    def dY_side(self) -> int:
        return _apart(BLOCK * self.blocks, self.blocks)

    @property
    def X_pitch(self) -> int:
        return self.sides * self.X_side

    @property
    def dY_pitch(self) -> int:
        """With one more block, of zeros, for slots without one."""
        return self.sides * self.dY_side + BLOCK

    @property
    def X_channel(self) -> int:
        return round_up(STEP_ROWS // 2 * self.X_pitch, 4)

    @property
    def dY_channel(self) -> int:
        return round_up(STEP_ROWS // 2 * self.dY_pitch, 4)

    @property
    def X_bytes(self) -> int:
        return 4 * (self.channels * self.X_channel + self.octets * self.octet_pad)

    @property
    def dY_bytes(self) -> int:
        return 4 * (self.channels * self.dY_channel + self.octets * self.octet_pad)

    # Sums in shared memory at the end, in words: channel | row of taps | column of dY | column of X
    @property
    def sums_pitch(self) -> int:
        """Words from a column of dY to the next, without bank conflicts of stores."""
        return WINDOW + 4

    @property
    def matrix(self) -> int:
        """Words from a row of taps to the next, without bank conflicts of loads."""
        return BLOCK * self.sums_pitch + self.taps[1]

    @property
    def sums_bytes(self) -> int:
        return self.channels * self.taps[0] * self.matrix * 4

    @property
    def shared_bytes(self) -> int:
        return max(self.raw_bytes + 2 * (self.X_bytes + self.dY_bytes), self.sums_bytes)


def _apart(least: int, blocks: int) -> int:
    """Words from side to side, at least so many: such that the first four slots, and the last, are in different banks
    where several sides are among them.
    """
    step = {1: 8, 2: 16}.get(blocks)  # in words, between the sides of four slots
    return next(n for n in range(round_up(least, 2), least + 64, 2) if step is None or n % (2 * step) == step)
