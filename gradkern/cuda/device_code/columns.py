"""Which threads own which columns of a matrix, and what adding up its rows needs. Nothing here imports Numba."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ITEMSIZE", "ByColumns", "ColumnSums", "chunk_of", "up"]

ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


class ByColumns:
    """What follows from how the columns are given to threads: for a frozen dataclass that has the fields below.

    A block has `warp_groups` groups of whole warps. A group has one row at a time, with `lanes` threads side by side,
    or 32 / lanes rows where `lanes` < 32. The columns are cut into `slices`, one block each: block b has slice
    b % slices. Each thread of a row has `vectors` vectors of `width` columns: vector j of lane l begins at column
    (l + j * lanes) * width of the slice.
    """

    __slots__ = ()

    columns: int
    width: int
    lanes: int
    vectors: int
    warp_groups: int
    slices: int

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
    def slice_columns(self) -> int:
        """Columns of every slice but the last, which may have fewer: 16 bytes or a multiple in every type."""
        return up(-(-self.columns // self.slices), 8) if self.slices > 1 else self.columns

    @property
    def full_vectors(self) -> int:
        """How many of a thread's vectors lie within the columns in every thread; of the others each thread must ask."""
        fewest = min(self.slice_columns, self.columns - (self.slices - 1) * self.slice_columns)
        return min(self.vectors, fewest // (self.width * self.lanes))

    @property
    def per_thread(self) -> int:
        return self.vectors * self.width


@dataclass(frozen=True, slots=True)
class ColumnSums(ByColumns):
    """The sums over all rows of one or two values an element has: the constants of `column_sums`."""

    columns: int
    width: int
    lanes: int
    vectors: int
    warp_groups: int
    slices: int
    sums: int  # 1 or 2
    compute: str  # the type that is added: float32 or float64
    result: str  # the type of the results in memory
    at: int  # first byte of the block's shared memory that is free once all rows are done; a multiple of 16
    chunk: int = 8  # last step: threads side by side, of 4 columns each
    single_block: bool = False  # a block has all rows of its columns, so that its sums are the result
    fold: int = 1  # the columns are those of the result, so many times over; not with `single_block`
    counts_progress: bool = False  # the kernel counts its progress at `counter` + 128, which is cleared at its end
    native_bfloat16: bool = True

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.compute]

    @property
    def padded_columns(self) -> int:
        """Columns of one row of partial sums."""
        return up(self.columns, 4 * self.chunk)

    @property
    def padded_results(self) -> int:
        """Columns of one result, as the last step takes them: 4 * chunk at a time."""
        return up(self.columns // self.fold, 4 * self.chunk)

    @property
    def partial_bytes(self) -> int:
        """Scratch memory of each block (of a slice) that adds rows."""
        return self.sums * self.padded_columns * self.itemsize

    @property
    def shared_bytes(self) -> int:
        """Shared memory needed from `at` on."""
        combine = self.warp_groups * self.sums * up(self.slice_columns, 4) * self.itemsize
        last = self.threads // 32 * self.chunk * 4 * self.itemsize
        return max(combine if self.warp_groups > 1 or self.single_block else 0, last)


def chunk_of(sums: int, columns: int, threads: int, processors: int) -> int:
    """The fewest columns a block takes at a time in the last step, so that every block has some: ColumnSums.chunk."""
    for chunk in (4, 8, 16):
        if sums * columns <= 4 * chunk * processors:
            return chunk if threads >= 4 * chunk else 8
    return 32 if threads >= 128 else 8


def up(value: int, multiple: int) -> int:
    """The least multiple that is not less."""
    return -(-value // multiple) * multiple
