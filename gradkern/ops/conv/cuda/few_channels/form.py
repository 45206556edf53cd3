"""The constants one kernel of the dW of a convolution of few channels is made for, and what shared memory holds.

A row of dY meets one row of X for each row of taps, and a row of taps is one run of X's elements: of all its columns
and channels, which lie end to end. With j for the place in that run, and S elements of X from a column of dY to the
next,

    dW[m, k, j] = sum over images, rows h and columns w of dY[h, w, m] * X[h * stride + k - begin, S * w + j - lead]

is a product of matrices for each k, which sums over columns w, 16 at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradkern.cuda.device_code.columns import up
from gradkern.cuda.device_code.kernel_name import kernel_name

__all__ = ["COLUMNS", "FILTERS", "OCTET", "PLACES", "FewChannelsForm"]

OCTET = 8  # filters that one access of 16 bytes moves
FILTERS, COLUMNS, PLACES = 16, 16, 8  # of one product of matrices: of dY, and of X
_MOST_FILTERS = 64  # of a block
_PAD = 8  # words from pair to pair of dY beyond its filters: threads that read together are in different banks
_MOST_PRODUCTS = 8192  # in one sum: tensor cores cut off where others round


@dataclass(frozen=True)
class FewChannelsForm:
    """X, dY and taps are (rows, columns), strides of arrays in bytes, from image to image and row to row; in dW from
    filter to filter, tap to tap along rows and columns, and channel to channel.

    begins  pads before the first row and column of X
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
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        taps = f"{self.taps[0]}x{self.taps[1]}"
        return kernel_name("conv_few_channels_dW", self.dtype, f"{self.channels}_to_{self.filters}", taps)

    def resident(self, blocks: int) -> FewChannelsForm:
        """The same, compiled so that a multiprocessor has registers for `blocks` blocks."""
        return replace(self, blocks_per_processor=blocks)

    @property
    def threads(self) -> int:
        """A warp for each row of taps."""
        return 32 * self.taps[0]

    @property
    def block_filters(self) -> int:
        return min(_MOST_FILTERS, up(self.filters, FILTERS))

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
    def pairs(self) -> int:
        """Of columns of dY in shared memory, with those of zeros that fill the last product."""
        return self.column_tiles * COLUMNS // 2

    @property
    def step(self) -> int:
        """Elements of X from a column of dY to the next."""
        return self.steps[1] * self.channels

    # Shared memory, in words of two columns of dY: dY, pair | filter, then X, row of taps | element
    @property
    def dY_pitch(self) -> int:
        return self.block_filters + _PAD

    @property
    def X_words(self) -> int:
        """Of one row: each element with the one a column of dY further on."""
        return 2 * self.step * (self.pairs - 1) + PLACES * self.place_tiles

    @property
    def rows_at_once(self) -> int:
        """Rows of X that one row of dY meets and the one before does not."""
        return min(self.taps[0], self.steps[0])

    @property
    def X_each(self) -> int:
        """Words of them that a thread moves."""
        return -(-self.rows_at_once * self.X_words // self.threads)

    @property
    def dY_vectors(self) -> int:
        """Of two columns of a row of dY, that a thread moves."""
        return -(-(-(-self.dY[1] // 2) * self.block_filters // OCTET) // self.threads)

    @property
    def X_at(self) -> int:
        return 4 * self.pairs * self.dY_pitch

    @property
    def shared_bytes(self) -> int:
        rows, sums = self.X_at + 4 * self.taps[0] * self.X_words, self.threads * self.sums * 4
        return max(rows, sums, 8 * self.threads)  # of which the last is what adding over blocks takes

    def chunks(self, images: int, blocks: int) -> int:
        """Into how many runs to cut the rows of all images, where so many blocks take filters `groups` at a time."""
        rows = images * self.dY[0]
        at_once = max(1, blocks // self.groups)
        rounds = -(-rows * self.dY[1] // (at_once * _MOST_PRODUCTS))
        share = -(-rows // (rounds * at_once))
        return -(-rows // share)
