"""Compile-time constants of the dW kernel for few channels, and its layout of shared memory.

A row of dY needs one row of X for each row of taps. A row of taps corresponds to one run of X's elements: of all
columns and channels, contiguous in memory. With j for the place in that run, and S elements of X from a column of dY to
the next,

    dW[m, k, j] = sum over images, rows h and columns w of dY[h, w, m] * X[h * stride + k - begin, S * w + j - lead]

is a matrix product for each k, with sums over columns w, 16 at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.device_code.kernel_name import kernel_name

OCTET = 8  # filters of one access of 16 bytes
FILTERS, COLUMNS, PLACES = 16, 16, 8  # of one matrix product: of dY, and of X
_STAGES = 2  # rows of dY in shared memory: one is multiplied, the next is copied
_BANKS = 32
_MOST_PRODUCTS = 8192  # in one sum: tensor cores truncate instead of rounding


@dataclass(frozen=True)
class FewChannelsConfig:
    """X, dY and taps are (rows, columns), strides of arrays in bytes, from image to image and row to row; in dW from
    filter to filter, tap to tap along rows and columns, and channel to channel.

    begins         pads before the first row and column of X
    block_filters  of a block
    X_vector       bytes of one access to X
    """

    dtype: str
    filters: int
    channels: int
    X: tuple[int, int]
    dY: tuple[int, int]
    taps: tuple[int, int]
    steps: tuple[int, int]
    begins: tuple[int, int]
    X_strides: tuple[int, int]
    dY_strides: tuple[int, int, int]
    dW_strides: tuple[int, int, int, int]
    X_vector: int
    block_filters: int
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        taps = f"{self.taps[0]}x{self.taps[1]}"
        return kernel_name("conv_few_channels_dW", self.dtype, f"{self.channels}_to_{self.filters}", taps)

    @property
    def threads(self) -> int:
        """A warp for each row of taps."""
        return 32 * self.taps[0]

    @property
    def groups(self) -> int:
        return -(-self.filters // self.block_filters)

    @property
    def filter_tiles(self) -> int:
        return self.block_filters // FILTERS

    @property
    def places(self) -> int:
        """Elements of a row of taps."""
        return self.taps[1] * self.channels

    @property
    def place_tiles(self) -> int:
        return -(-self.places // PLACES)

    @property
    def all_taps(self) -> int:
        """Elements of a filter."""
        return self.taps[0] * self.places

    @property
    def weights(self) -> int:
        """Elements of dW."""
        return self.filters * self.all_taps

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.filter_tiles * self.place_tiles * 4

    @property
    def column_tiles(self) -> int:
        return -(-self.dY[1] // COLUMNS)

    @property
    def step(self) -> int:
        """Elements of X from a column of dY to the next."""
        return self.steps[1] * self.channels

    @property
    def rows_at_once(self) -> int:
        """Rows of X that one row of dY needs and the one before does not."""
        return min(self.taps[0], self.steps[0])

    @property
    def held_rows(self) -> int:
        """Rows of X in shared memory: those of a row of dY, and those that the next needs besides."""
        return self.taps[0] + self.rows_at_once

    # A lane may have any of the eight pairs of columns of a product, if dY and X have the same
    @property
    def pairs_apart(self) -> int:
        """Distance of the pairs of columns of four lanes and the next four, such that they read words of X in different
        banks.
        """
        return min((1, 2), key=self._conflicts)

    @property
    def later_pair(self) -> int:
        """From a lane's first pair of columns to its second."""
        return 4 if self.pairs_apart == 1 else 1

    def _conflicts(self, apart: int) -> int:
        """The most lanes of a warp that read X from one bank, even the same word."""
        banks = [(down * apart * 2 * self.step + across) % _BANKS for down in range(4) for across in range(8)]
        return max(banks.count(bank) for bank in banks)

    # Shared memory: rows of dY, column | filter; rows of X as they are; rows of X in words of two elements, a column of
    # dY apart. All in bytes
    @property
    def dY_pitch(self) -> int:
        """Bytes from column to column, without bank conflicts among eight columns that are read together."""
        return 2 * (self.block_filters + OCTET)

    @property
    def eights_apart(self) -> int:
        """More, after every eight columns, for the same where those read together are not neighbours."""
        return 0 if self.pairs_apart == 1 else 32

    @property
    def dY_tile(self) -> int:
        return COLUMNS * self.dY_pitch + COLUMNS // 8 * self.eights_apart

    @property
    def dY_bytes(self) -> int:
        """Of a row, with columns of zeros that fill the last product."""
        return self.column_tiles * self.dY_tile

    @property
    def lead(self) -> int:
        """Elements of zeros before a row of X, so that its vectors are aligned to their size."""
        return round_up(self.begins[1] * self.channels, max(2, self.X_vector // 2))

    @property
    def first(self) -> int:
        """The element of X for the first column of dY and the first tap."""
        return self.lead - self.begins[1] * self.channels

    @property
    def X_words(self) -> int:
        """Of one row, from the even element before the first on."""
        last = 2 * self.step * (self.column_tiles * COLUMNS // 2 - 1) + PLACES * self.place_tiles
        return round_up(self.first % 2 + last, 2)

    @property
    def X_bytes(self) -> int:
        """Of a row as it is, with zeros on both sides."""
        copied = self.lead + round_up(self.X[1] * self.channels, OCTET)
        return 2 * round_up(max(copied, self.first + self.X_words + self.step + 1), OCTET)

    @property
    def X_at(self) -> int:
        return _STAGES * self.dY_bytes

    @property
    def words_at(self) -> int:
        return self.X_at + self.held_rows * self.X_bytes

    @property
    def shared_bytes(self) -> int:
        rows, sums = self.words_at + 4 * self.held_rows * self.X_words, self.block_filters * self._places_of_filter * 4
        return round_up(max(rows, sums, 8 * self.threads), 16)  # the last: of the sum over blocks

    @property
    def _places_of_filter(self) -> int:
        return self.taps[0] * self.place_tiles * PLACES

    def chunks(self, images: int, blocks: int) -> int:
        """The number of runs of the rows of all images, for this many blocks and `groups` groups of filters."""
        rows = images * self.dY[0]
        at_once = max(1, blocks // self.groups)
        rounds = -(-rows * self.dY[1] // (at_once * _MOST_PRODUCTS))
        share = -(-rows // (rounds * at_once))
        return -(-rows // share)
