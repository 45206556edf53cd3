"""Which threads own which columns of a matrix, and what adding up its rows needs. Nothing here imports Numba."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

__all__ = ["ITEMSIZE", "ByColumns", "ColumnSums", "last_step", "reciprocal", "up"]

_MOST_AHEAD = 6  # with 8, registers spilled once
ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


class ByColumns:
    """What follows from how columns are given to threads: for a frozen dataclass that has the fields below. How many
    columns there are is no constant of a kernel: one serves all that its threads have vectors for.

    A block has `warp_groups` groups of whole warps. A group has one row at a time, with `lanes` threads side by side,
    or 32 / lanes rows where `lanes` < 32. Where these are too few for all columns, a block has a slice of them. Each
    thread of a row has `vectors` vectors of `width` columns: vector j of lane l begins at the slice's column
    (l + j * lanes) * width.
    """

    __slots__ = ()

    width: int
    lanes: int
    vectors: int
    warp_groups: int

    @property
    def group_threads(self) -> int:
        return max(self.lanes, 32)

    @property
    def threads(self) -> int:
        return self.warp_groups * self.group_threads

    @property
    def group_rows(self) -> int:
        """Rows of one group at a time."""
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
    """The sums over all rows of one to three values an element has: the constants of `column_sums`."""

    width: int
    lanes: int
    vectors: int
    warp_groups: int
    sums: int  # 1, 2 or 3
    compute: str  # the type that is added: float32 or float64
    result: str  # the type of the results in memory
    at: int  # first byte of the block's shared memory that is free once all rows are done; a multiple of 16
    chunk: int = 8  # last step: threads side by side, of 4 columns each: a power of two
    ahead: int = 4  # last step: partial rows that a thread has under way at once
    certain_vectors: int = 0  # so many of a thread's vectors lie within the columns in every thread
    single_block: bool = False  # a block has all rows of its columns, so that its sums are the result
    by_units: bool = False  # a thread's vectors begin at first_column, which may be before column 0: see column_sums
    fold: int = 1  # the columns are those of the result, so many times over; not with `single_block`
    counts_progress: bool = False  # the kernel counts its progress at `counter` + 128, which is cleared at its end
    kept: bool = False  # much is read and written after a partial row, so that the L2 cache is asked to keep it
    long: bool = False  # the bytes of a row of partial sums need more than 31 bits
    native_bfloat16: bool = True

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.compute]

    def padded_columns(self, columns: int) -> int:
        """Columns of one row of partial sums, as the last step takes them: 4 * chunk at a time."""
        return up(columns, 4 * self.chunk)

    def partial_bytes(self, columns: int) -> int:
        """Scratch memory of each block (of a slice) that adds rows."""
        return self.sums * self.padded_columns(columns) * self.itemsize

    @property
    def teams(self) -> int:
        """Of threads, in the last step: each leaves a sum of every column of a share. A warp adds up its own first."""
        return self.threads // max(32, self.chunk)

    @property
    def shared_bytes(self) -> int:
        """Shared memory needed from `at` on."""
        combine = self.warp_groups * self.sums * up(self.most_columns, 4) * self.itemsize
        last = self.teams * self.chunk * 4 * self.itemsize
        return max(combine if self.warp_groups > 1 or self.single_block or self.by_units else 0, last)


def last_step(
    results: int, partial_rows: int, threads: int, blocks: int, ways: Sequence[tuple[int, int]] = ()
) -> tuple[int, int]:
    """ColumnSums.chunk and .ahead for so many columns of all results and partial rows, in as many blocks: what takes
    least, of these ways or of all. Where each block has many columns and few rows, its threads stand side by side;
    where it has few columns, they share out the rows.

    The times, in microseconds, for each share of a block, one after the other: what its end takes, what it takes until
    loads arrive, and what each of them adds. Fitted to 330 ways of 30 random gradients of layer norms on an H200: what
    it chooses of them took 0.5 % longer than the fastest in the mean.
    """
    blocks = 1 << round(log2(blocks))  # so that boards of one architecture take the same kernels

    def time(way: tuple[int, int]) -> float:
        chunk, ahead = way
        shares = -(-results // (4 * chunk))
        rounds = -(-partial_rows // (threads // chunk * ahead))
        return -(-shares // blocks) * (0.29 + rounds * (0.2 + 0.027 * ahead))

    chunks = (1 << power for power in range(threads.bit_length()))
    return min(ways or [(chunk, ahead) for chunk in chunks for ahead in range(1, _MOST_AHEAD + 1)], key=time)


def reciprocal(divisor: int) -> tuple[int, int]:
    """The multiplier and the shift with which intrinsics.divided divides."""
    shift = (divisor - 1).bit_length()
    return -(-(1 << 31 + shift) // divisor), shift


def up(value: int, multiple: int) -> int:
    """The least multiple that is not less."""
    return -(-value // multiple) * multiple
