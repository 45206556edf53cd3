"""Compile-time constants of a depthwise dX or Y kernel on tensor cores, and its layout of shared memory.

dX and Y are the same kind of sum with dY and X exchanged: see mma_output_kernel. The array that is read is the source.
As for dW (mma_config) images are stacked with rows of zeros between them, and narrow images are also side by side. A
block processes some channels of a run of output rows, a few at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.ops.conv.cuda.depthwise.mma_config import BANKS, BLOCK, WINDOW, OfChannels, period, steps

__all__ = ["PLACE", "SLOTS", "UNIT", "MmaOutputConfig"]

UNIT = 4  # columns that a thread transposes together
SLOTS = 16  # blocks of BLOCK output columns in one matrix product
PLACE = 10  # words from a place of the output to the next, without bank conflicts of stores


@dataclass(frozen=True)
class MmaOutputConfig(OfChannels):
    """Sizes are (rows, columns), strides of arrays in bytes: from image to image, row to row and column to column.

    channels  of a block
    source    the array that is read: dY of dX, X of Y
    begins    rows and columns between an output element and the first source element that it needs
    filter_strides, bias_stride  from channel to channel, row to row and column to column
    rows      of the output, between two barriers
    """

    gradient: Literal["dX", "Y"]
    dtype: str
    total_channels: int
    channels: int
    source: tuple[int, int]
    output: tuple[int, int]
    taps: tuple[int, int]
    begins: tuple[int, int]
    source_strides: tuple[int, int, int]
    output_strides: tuple[int, int, int]
    filter_strides: tuple[int, int, int]
    bias_stride: int | None
    rows: int
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        taps = f"{self.taps[0]}x{self.taps[1]}"
        return kernel_name(f"conv_depthwise_mma_{self.gradient}", self.dtype, self.total_channels, taps)

    @property
    def blocks(self) -> int:
        """Of columns, in a row of the output."""
        return -(-self.output[1] // BLOCK)

    @property
    def sides(self) -> int:
        """Images side by side."""
        return SLOTS // self.blocks

    @property
    def period(self) -> int:
        """Rows from one image to the next below it."""
        return period(self.source[0], self.output[0], self.taps[0], self.begins[0], self.rows)

    @property
    def ahead(self) -> int:
        """The source's row in the step of an output row: the last that it needs."""
        return self.taps[0] - 1 - self.begins[0]

    @property
    def warm_steps(self) -> int:
        """Steps before a block's first, for source rows of its first output rows."""
        return -(-(self.taps[0] - 1) // self.rows)

    def steps(self, images: int) -> int:
        """Of all images."""
        return steps(images, self.sides, self.period, self.output[0], self.rows)

    @property
    def side_slots(self) -> int:
        """Slots of an image at a side: its blocks, and perhaps a few unused ones."""
        return SLOTS // self.sides

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
            return max(self._conflicts(pitch, first) for first in range(0, SLOTS, 8))

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
        return SLOTS * (BLOCK // 2) * PLACE

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
