"""How the kernels of the segment block run: the sort of the keys, and the sums of rows with equal keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradkern.cuda.device_code.columns import ITEMSIZE

MOST = 8  # dimensions, and indices of an element, that a key is made of
_NUMBERS = tuple(f"{name}_{n}" for name in ("size", "stride", "bound", "step") for n in range(MOST))
_CLEARED = ("blocks", "target", "clear_from", "clear_to")
COUNT_ARGUMENTS = (
    *("indices", "keys", "counts", "count", "tile", "shift"), *_CLEARED, "rows", "dropped", *_NUMBERS,
)  # fmt: skip
SCATTER_ARGUMENTS = ("keys", "positions", "keys_to", "positions_to", "counts", "count", "tile", "shift", *_CLEARED)
SUMS_ARGUMENTS = (
    "keys", "positions", "source", "target", "heads", "tails", "count", "piece", "pieces", "rows", "columns",
    "column_blocks", "items", "item_blocks", "all_rows", "tile",
)  # fmt: skip
_VECTOR = 16  # bytes of one access, at most
_LEAST_PIECE = 32
_LEAST_BITS, _MOST_BITS = 8, 10
_BLOCKS, _MOST_STEPS = 32, 8
_STORES = 16  # of a thread that clears


@dataclass(frozen=True, slots=True)
class KeyTypes:
    """What the kernel that makes the keys is compiled for, besides its config.

    indices     int32 or int64
    dimensions  of an element's place that are part of its key
    each        indices of an element
    long        a key needs more than 31 bits
    """

    indices: str
    dimensions: int
    each: int
    long: bool


@dataclass(frozen=True, slots=True)
class SumsTypes:
    """What the kernels of sums are compiled for, besides their config.

    data        the type of the rows
    long        a key needs more than 31 bits
    accumulate  sums are added to the rows that are there
    """

    data: str
    long: bool
    accumulate: bool
    native_bfloat16: bool = True  # compute capability 8.0 and newer convert to bfloat16 themselves

    @property
    def compute(self) -> str:
        """The type of sums."""
        return "float64" if self.data == "float64" else "float32"


@dataclass(frozen=True, slots=True)
class SortConfig:
    """One pass of the sort, by `bits` bits of the keys. Of a thread `steps` keys are in flight at once, and the counts
    of `counts` blocks.

    overlap  its launches may overlap the ones before
    clears   bytes of a store of other blocks, those that set the target to zero; 0: there are none
    """

    bits: int
    threads: int = 256
    steps: int = 8
    counts: int = 8
    overlap: bool = False
    clears: int = 0
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        return f"{self.bits}_bits"

    @property
    def digits(self) -> int:
        return 1 << self.bits

    @property
    def warps(self) -> int:
        return self.threads // 32

    @property
    def shared_bytes(self) -> int:
        """A counter of each digit for each warp, one more for lanes without a key; a word of each thread."""
        return 4 * (self.warps * (self.digits + 1) + self.threads)

    @property
    def tile(self) -> int:
        """The least number of keys of a block."""
        return self.threads * self.steps

    @property
    def cleared(self) -> int:
        """Bytes of a block that clears."""
        return self.threads * self.clears * _STORES


@dataclass(frozen=True, slots=True)
class SumsConfig:
    """width: elements of a vector; lanes: threads side by side along a row; unroll: rows in flight at once; overlap: a
    launch may overlap the one before.
    """

    width: int
    lanes: int
    unroll: int = 8
    threads: int = 256
    overlap: bool = False
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        return f"{self.groups}x{self.lanes}x{self.width}"

    @property
    def groups(self) -> int:
        """Of threads, each with a row at a time."""
        return self.threads // self.lanes

    def blocks(self, columns: int) -> int:
        """Blocks of columns that have `lanes` vectors each."""
        return -(-columns // (self.lanes * self.width))

    @property
    def shared_bytes(self) -> int:
        return 32 * self.threads  # a vector of sums of each; or the rows of a tile that have a sum


def sort_config(rows: int, count: int) -> tuple[SortConfig, int]:
    """For so many keys from 0 to `rows`: the config of a pass, and how many passes. Each block reads the counts of all:
    keys of a thread are as many as leave 32 blocks, or eight.
    """
    bits = rows.bit_length()
    passes = -(-bits // _MOST_BITS)
    config = SortConfig(max(_LEAST_BITS, -(-bits // passes)), steps=1)
    while config.steps < _MOST_STEPS and count > _BLOCKS * config.tile:
        config = replace(config, steps=config.steps * 2)
    return config, passes


def sums_config(data: str, columns: int, alignment: int) -> SumsConfig:
    """For rows of so many columns, of arrays of this least alignment in bytes: vectors as wide as all rows allow."""
    item = ITEMSIZE[data]
    row = columns * item
    width = max(1, min(alignment, _VECTOR, row & -row) // item)
    lanes = 1
    while lanes < 256 and lanes * width < columns:
        lanes *= 2
    return SumsConfig(width, lanes)


def piece_of(count: int, groups: int) -> int:
    """Rows of a piece of the sorted list, a power of 2: a group of threads adds up a piece, and `groups` of them the
    parts of a sum that is in all pieces. Neither takes longer than the other.
    """
    piece = _LEAST_PIECE
    while piece * piece * groups < count:
        piece *= 2
    return piece
