"""Compile-time constants of the depthwise kernels on tensor cores, and their layouts of shared memory.

One kernel computes dW, another dX or Y: these are the same kind of sum with dY and X exchanged. Both read an array, the
source, by windows around the elements of another, the grid: X around dY for dW, X around Y, dY around dX.

Images are stacked to one tall image with rows of zeros between them; narrow images are also side by side. A block
processes some channels of a run of the tall image's rows, a few rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.device_code.kernel_name import kernel_name

WARP_CHANNELS = 2  # of one warp, with their sums in its registers
STAGES = 2  # steps with copies in flight
BANKS = 32  # of shared memory, each a word wide
OCTET = 8  # channels of one access of 16 bytes
BLOCK, WINDOW = 8, 16  # columns of the grid and of the source in one matrix product
STEP_ROWS = 4  # of dY between two barriers, for dW
_MOST_PRODUCTS = 512  # in one sum of dW: tensor cores truncate instead of rounding
UNIT = 4  # columns that a thread transposes together, for dX and Y
PLACE = 10  # words from a place of the output to the next, without bank conflicts of stores


@dataclass(frozen=True, kw_only=True)
class MmaConfig:
    """Sizes are (rows, columns), strides of arrays in bytes: from image to image, row to row and column to column.

    channels  of a block
    begins    rows and columns between an element of the grid and the first of the source that meets it
    rows      of the grid, between two barriers
    filter_strides  from channel to channel, row to row and column to column
    """

    slots: ClassVar[int]  # blocks of BLOCK columns of the grid in one matrix product
    gradient: Literal["dX", "dW", "Y"]
    dtype: str
    total_channels: int
    channels: int
    source: tuple[int, int]
    grid: tuple[int, int]
    taps: tuple[int, int]
    begins: tuple[int, int]
    source_strides: tuple[int, int, int]
    grid_strides: tuple[int, int, int]
    filter_strides: tuple[int, int, int]
    rows: int
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        taps = f"{self.taps[0]}x{self.taps[1]}"
        return kernel_name(f"conv_depthwise_mma_{self.gradient}", self.dtype, self.total_channels, taps)

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

    @property
    def blocks(self) -> int:
        """Of columns, in a row of the grid."""
        return -(-self.grid[1] // BLOCK)

    @property
    def sides(self) -> int:
        """Images side by side."""
        return self.slots // self.blocks

    @property
    def period(self) -> int:
        """Rows from one image to the next below it: enough that no row of the convolution's output (or of dX) needs
        rows of another image, and no fewer than a step has.
        """
        (source, _), (grid, _), (taps, _), (begin, _) = self.source, self.grid, self.taps, self.begins
        return max(source + begin, grid - 1 + taps - begin, grid, self.rows)

    def steps(self, images: int) -> int:
        """Of all images."""
        stacks = -(-images // self.sides)
        return -(-((stacks - 1) * self.period + self.grid[0]) // self.rows)


@dataclass(frozen=True, kw_only=True)
class MmaWeightConfig(MmaConfig):
    """Of dW: the source is X, the grid dY."""

    slots: ClassVar[int] = 8
    gradient: Literal["dX", "dW", "Y"] = "dW"
    rows: int = STEP_ROWS

    @property
    def all_taps(self) -> int:
        return self.taps[0] * self.taps[1]

    @property
    def weights(self) -> int:
        """Elements of dW."""
        return self.total_channels * self.all_taps

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
        return _apart(round_up(max(read, self.lead + round_up(self.source[1], 2)), 2), self.blocks)

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


@dataclass(frozen=True, kw_only=True)
class MmaOutputConfig(MmaConfig):
    """Of dX or Y: the grid is the output. bias_stride: from channel to channel of Y's bias; None without one."""

    slots: ClassVar[int] = 16
    bias_stride: int | None

    @property
    def ahead(self) -> int:
        """The source's row in the step of an output row: the last that it needs."""
        return self.taps[0] - 1 - self.begins[0]

    @property
    def warm_steps(self) -> int:
        """Steps before a block's first, for source rows of its first output rows."""
        return -(-(self.taps[0] - 1) // self.rows)

    @property
    def side_slots(self) -> int:
        """Slots of an image at a side: its blocks, and perhaps a few unused ones."""
        return self.slots // self.sides

    # The source in shared memory, in words of two columns: channel | image at a side | row | columns from -begin on
    @property
    def units(self) -> int:
        """Of UNIT columns, that the windows of one row and side reach."""
        return (BLOCK * (self.blocks - 1) + WINDOW) // UNIT

    @property
    def moved(self) -> int:
        """Units of eight channels that a block moves in a step."""
        return self.rows * self.sides * self.units * self.octets

    @property
    def row(self) -> int:
        return self.units * UNIT // 2

    @property
    def side(self) -> int:
        """Words from side to side, with few bank conflicts among rows of matrices that are read together."""
        least = self.rows * self.row

        def conflicts(pitch: int) -> int:
            return max(self._conflicts(pitch, first) for first in range(0, self.slots, 8))

        return min(range(least, least + BANKS, 4), key=lambda pitch: (conflicts(pitch), pitch))

    def _conflicts(self, pitch: int, first: int) -> int:
        """The number of bank conflicts among eight slots' rows of a matrix, of 16 bytes each."""
        slots = [divmod(slot, self.side_slots) for slot in range(first, first + 8)]
        slots = [(min(side, self.sides - 1), min(block, self.blocks - 1)) for side, block in slots]
        places = {side * pitch + block * (BLOCK // 2) for side, block in slots}
        banks = [place % BANKS for place in places]
        return max(banks.count(bank) for bank in banks)

    @property
    def channel(self) -> int:
        return self.sides * self.side

    @property
    def source_bytes(self) -> int:
        return round_up(4 * (self.channels * self.channel + self.octets * self.octet_pad), 16)

    # The output in shared memory, in words of two columns: octet | row | slot | pair of columns | channel
    @property
    def output_row(self) -> int:
        return self.slots * (BLOCK // 2) * PLACE

    @property
    def output_octet(self) -> int:
        return self.rows * self.output_row + self.octet_pad

    @property
    def output_bytes(self) -> int:
        return round_up(4 * self.octets * self.output_octet, 16)

    @property
    def shared_bytes(self) -> int:
        """Copies in flight | source of even and odd steps | output of even and odd steps."""
        return self.raw_bytes + 2 * (self.source_bytes + self.output_bytes)


def _apart(least: int, blocks: int) -> int:
    """Words from side to side, at least so many: such that the first four slots, and the last, are in different banks
    where several sides are among them.
    """
    step = {1: 8, 2: 16}.get(blocks)  # in words, between the sides of four slots
    return next(n for n in range(round_up(least, 2), least + 64, 2) if step is None or n % (2 * step) == step)
