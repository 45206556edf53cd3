"""How columns of a matrix are assigned to threads, and the config of sums over its rows. Nothing here imports Numba."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double, c_float, c_int32, c_int64
from dataclasses import dataclass
from math import log2

_MOST_IN_FLIGHT = 6  # with 8, registers spilled once
ITEMSIZE = {"bool": 1, "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


class ByElementType:
    """Properties that follow from the type of the elements: a base of frozen dataclasses with the field below."""

    __slots__ = ()

    data: str

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if self.data == "float64" else "float32"

    @property
    def itemsize(self) -> int:
        """Of the type of arithmetic."""
        return ITEMSIZE[self.compute]

    @property
    def data_itemsize(self) -> int:
        return ITEMSIZE[self.data]


class ByColumns:
    """Properties that follow from the assignment of columns to threads: a base of frozen dataclasses with the fields
    below. The number of columns is not a constant of a kernel: one kernel serves every number that fits its threads.

    A block has `groups_per_block` groups of whole warps. A group has one row at a time, with `lanes` threads side by
    side, or 32 / lanes rows where `lanes` < 32. Where these are too few for all columns, a block has a slice of them.
    Each thread of a row has `vectors` vectors of `width` columns: vector j of lane l begins at the slice's column
    (l + j * lanes) * width.
    """

    __slots__ = ()

    width: int
    lanes: int
    vectors: int
    groups_per_block: int

    @property
    def group_threads(self) -> int:
        return max(self.lanes, 32)

    @property
    def threads(self) -> int:
        return self.groups_per_block * self.group_threads

    @property
    def group_rows(self) -> int:
        """Rows that a group takes at a time."""
        return max(1, 32 // self.lanes)

    @property
    def per_thread(self) -> int:
        return self.vectors * self.width

    @property
    def most_columns(self) -> int:
        """Of a slice."""
        return self.lanes * self.per_thread


@dataclass(frozen=True, slots=True)
class ColumnSums(ByColumns):
    """Constants of `column_sums`: sums over all rows of one to three values of each element."""

    width: int
    lanes: int
    vectors: int
    groups_per_block: int
    sums: int  # 1, 2 or 3
    compute: str  # type of the sums: float32 or float64
    result: str  # the type of the results in memory
    at: int  # first byte of shared memory that is free after the last row; a multiple of 16
    chunk: int = 8  # last step: threads side by side, of 4 columns each: a power of two
    rows_in_flight: int = 4  # last step: partial rows that a thread loads before it adds the first
    unpredicated_vectors: int = 0  # the first vectors of every thread that lie within the columns: no bounds check
    single_block: bool = False  # one block has all rows of its columns: its sums are the result
    aligned_vectors: bool = False  # a thread's vectors begin at first_column, perhaps before column 0: see column_sums
    fold: int = 1  # the columns are `fold` repetitions of the result's columns; not with `single_block`
    counts_progress: bool = False  # the kernel counts its progress at `counter` + 128, cleared at its end
    evict_last: bool = False  # partial rows are stored with the L2 hint evict_last: much other data follows
    long: bool = False  # a row of partial sums has 2^31 bytes or more
    native_bfloat16: bool = True

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.compute]

    def padded_columns(self, columns: int) -> int:
        """Columns of one row of partial sums, padded to a multiple of the last step's 4 * chunk."""
        return round_up(columns, 4 * self.chunk)

    def partial_bytes(self, columns: int) -> int:
        """Scratch memory of each block that adds rows."""
        return self.sums * self.padded_columns(columns) * self.itemsize

    @property
    def final_groups(self) -> int:
        """Groups of threads in the last step. Each has a partial sum of every column of a share, after shuffles in a
        warp.
        """
        return self.threads // max(32, self.chunk)

    @property
    def shared_bytes(self) -> int:
        """Shared memory needed from `at` on."""
        combine = self.groups_per_block * self.sums * round_up(self.most_columns, 4) * self.itemsize
        last = self.final_groups * self.chunk * 4 * self.itemsize
        return max(combine if self.groups_per_block > 1 or self.single_block or self.aligned_vectors else 0, last)


def last_step(
    results: int, partial_rows: int, threads: int, blocks: int, ways: Sequence[tuple[int, int]] = ()
) -> tuple[int, int]:
    """The fastest ColumnSums.chunk and .rows_in_flight, of `ways` or of all.

    results: columns of all results. Where each block has many columns and few rows, its threads are side by side;
    where it has few columns, its threads share the rows.

    The cost model, in microseconds: each share of a block has a fixed cost, and each round of loads a latency and a
    cost for each load. It was fitted to 330 ways of 30 random gradients of layer norms on an H200: its choice took 0.5
    % longer than the fastest in the mean.
    """
    blocks = 1 << round(log2(blocks))  # boards of one architecture share kernels

    def time(way: tuple[int, int]) -> float:
        chunk, rows_in_flight = way
        shares = -(-results // (4 * chunk))
        rounds = -(-partial_rows // (threads // chunk * rows_in_flight))
        return -(-shares // blocks) * (0.29 + rounds * (0.2 + 0.027 * rows_in_flight))

    chunks = (1 << power for power in range(threads.bit_length()))
    return min(
        ways or [(chunk, rows_in_flight) for chunk in chunks for rows_in_flight in range(1, _MOST_IN_FLIGHT + 1)],
        key=time,
    )


def bits_of(number: float, compute: str) -> int:
    """A number as the argument of a kernel that reads it by float_of_bits. Beyond the type's it is infinite."""
    if compute == "float64":
        return c_int64.from_buffer(c_double(number)).value
    return c_int32.from_buffer(c_float(number)).value


def reciprocal(divisor: int) -> tuple[int, int]:
    """The multiplier and the shift of a division by intrinsics.divided."""
    shift = (divisor - 1).bit_length()
    return -(-(1 << 31 + shift) // divisor), shift


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple
