"""Common to the configs of the norms and of their gradients: how rows are divided among blocks, the ring of stages in
shared memory, and the layout of shared memory. Nothing here imports Numba.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from gradkern.cuda.device_code.columns import ITEMSIZE, ByColumns, ByElementType, round_up

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    *("X", "upstream", "added", "result", "second_result"),  # arrays of rows
    *("scale", "bias", "shift", "mean", "inv_std", "scale_grad", "bias_grad", "X_grad_sum"),
    *("partial", "row_sums", "counter"),  # scratch memory
    *("rows", "X_stride", "upstream_stride", "added_stride", "result_stride", "second_result_stride"),
    *("columns", "slice_columns", "over_columns", "epsilon"),  # over_columns: 1 / columns; as bits of config.compute
)


@dataclass(frozen=True, slots=True)
class RowConfig(ByColumns, ByElementType):
    """Compile-time constants of a kernel. The number of columns is a launch argument: one kernel serves every width
    that fits its threads, except that `unpredicated_vectors` must lie within every row.

    Up to three arrays pass through the ring: X; a second array, `upstream` (a gradient's Y_grad, a norm's skip); and an
    array that is added to the result. Up to two arrays of rows are written: the result (X_grad or Y), and a second one
    (branch_grad or a skip form's sum).

    aligned_vectors: contiguous rows of an odd number of columns are not aligned to vectors of 16 bytes, but they are
    offset equally in all arrays whose elements have one size. Vectors are then aligned in memory instead of to
    the begin of a row. A row's first vector begins up to width - 1 elements, its shift, before the row, and its last
    may end behind it; elements of other rows are masked. Rows a `period` apart have the same shift. A block takes only
    such rows, so that each of its threads has fixed columns.
    """

    operator: str
    data: str  # type of X, or of Y for the invertible norm's gradient
    upstream: str  # type of the second array; without one the type of X
    result: str  # type of the row's result
    parameter: str  # V
    statistic: str  # U
    outputs: frozenset[str]
    width: int
    lanes: int
    vectors: int
    groups_per_block: int
    blocks_per_row: int = 1
    unpredicated_vectors: int = 0  # the first vectors of a thread that lie within every row: no bounds check
    stages: int = 3
    scale_width: int = 1  # elements of scale, and of bias, that a thread loads at once
    source: str = "bulk"  # how rows reach the block: bulk, async (both into a ring in shared memory) or plain
    phase: str = "fused"  # one launch; or, for rows too wide for a cluster, two: row_sums, then apply
    # a row's values stay in registers between its passes. If not, the second pass reads the ring again, a block is one
    # group of warps, and the blocks of a row are a cluster
    row_in_registers: bool = True
    aligned: bool = True  # rows that are read start at multiples of 16 bytes
    packed: bool = True  # rows of every array lie end to end
    aligned_vectors: bool = False  # vectors are aligned in memory, not to the begin of a row
    long_rows: bool = False  # row numbers, or the bytes from row to row, need 64 bits
    native_bfloat16: bool = True
    blocks_per_processor: int = 1

    # --- what a kernel reads, and where; a kind of config says what differs -------------------------------------------

    @property
    def needs_X(self) -> bool:
        """X is read."""
        return True

    @property
    def needs_upstream(self) -> bool:
        """The second array is read."""
        return True

    @property
    def needs_added(self) -> bool:
        """The third array is read. It has X's type."""
        return False

    @property
    def row_terms(self) -> bool:
        """The two sums of a row are needed."""
        return True

    @property
    def refills_early(self) -> bool:
        """A stage of the ring is refilled before the second pass, that needs nothing from it."""
        return True

    @property
    def zero_padded(self) -> bool:
        """Zeros follow a row in the ring."""
        return False

    @property
    def sums(self) -> int:
        """Number of sums over rows that blocks with rows compute."""
        return 0

    @property
    def separate_reduction(self) -> bool:
        """There are column-reduction blocks: see column_blocks."""
        return False

    @property
    def scale_in_registers(self) -> bool:
        """Scale, and bias if it is added, are in registers of the threads that need them; else in shared memory."""
        raise NotImplementedError

    @property
    def shared_bias(self) -> bool:
        """Bias is in shared memory."""
        raise NotImplementedError

    @property
    def shared_inverse(self) -> bool:
        """1 / scale is in shared memory."""
        return False

    @property
    def name(self) -> str:
        """In a profiler."""
        raise NotImplementedError

    @property
    def shape(self) -> str:
        """Blocks per row x lanes x vectors x width, for names."""
        return f"{self.blocks_per_row}x{self.lanes}x{self.vectors}x{self.width}"

    @property
    def plan_name(self) -> str:
        """The source of rows and the kernel's shape, in a plan's name."""
        return f"{self.source}_{self.phase}_{self.shape}_groups{self.groups_per_block}_stages{self.stages}"

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if "float64" in (self.data, self.upstream, self.result) else "float32"

    @property
    def launch_cluster(self) -> int:
        """Blocks of a cluster of the launch."""
        return self.blocks_per_row if self.cluster else 1

    @property
    def phases(self) -> tuple[Self, ...]:
        """The launches."""
        return (replace(self, phase="row_sums"), self) if self.phase == "apply" else (self,)

    @property
    def waits_for_grid(self) -> bool:
        """Blocks write partial sums over rows to scratch memory and wait for the whole grid."""
        return False

    def partial_bytes(self, columns: int) -> int:
        """Of the partial sums of the blocks of one row."""
        return 0

    @property
    def non_persistent(self) -> bool:
        """A block ends after its first rows: every row has its own group of threads."""
        return False

    def grid(self, resident: int, wanted: int, columns: int, processors: int) -> int:
        """The blocks of a launch, where the device has room for `resident` at a time; 0: there are too few. wanted:
        those that give every row its own group of threads.
        """
        if self.launch_cluster == 1:
            resident = max(resident, self.blocks_per_row)  # independent blocks need not be resident together
        return wanted if resident and self.non_persistent else min(resident, wanted)

    # --- sizes --------------------------------------------------------------------------------------------------------

    @property
    def block_rows(self) -> int:
        """Rows that a block takes at a time."""
        return self.groups_per_block * self.group_rows

    @property
    def upstream_itemsize(self) -> int:
        return ITEMSIZE[self.upstream]

    @property
    def result_itemsize(self) -> int:
        return ITEMSIZE[self.result]

    @property
    def widest(self) -> int:
        """Bytes of the widest element."""
        return max(self.data_itemsize, self.upstream_itemsize, self.result_itemsize)

    @property
    def parameter_itemsize(self) -> int:
        return ITEMSIZE[self.parameter]

    @property
    def statistic_itemsize(self) -> int:
        return ITEMSIZE[self.statistic]

    @property
    def cluster(self) -> bool:
        """The blocks of a row form a cluster."""
        return self.blocks_per_row > 1 and self.phase == "fused"

    def slice_columns(self, columns: int) -> int:
        """Columns of each block of a row; the last may have fewer. A multiple of 16 bytes in every type, and of a line
        where bulk copies read rows. With `aligned_vectors` the columns before the row in its first vector count.
        """
        if self.aligned_vectors:
            columns += self.width - self.width // self.period(columns)
        whole = 64 if self.source == "bulk" else 8
        return round_up(-(-columns // self.blocks_per_row), whole) if self.blocks_per_row > 1 else columns

    def period(self, columns: int) -> int:
        """The period of shifts, in rows."""
        return self.width // min(self.width, columns & -columns) if self.aligned_vectors else 1

    def blocks_together(self, columns: int) -> int:
        """The number of blocks is a multiple: one for each part of a row and each shift."""
        return self.blocks_per_row * self.period(columns)

    @property
    def vector_bytes(self) -> int:
        """Of X."""
        return self.width * self.data_itemsize

    def fewest_columns(self, columns: int) -> int:
        """The fewest columns of a block of a row of this many columns."""
        return min(self.slice_columns(columns), columns - (self.blocks_per_row - 1) * self.slice_columns(columns))

    # --- the ring -----------------------------------------------------------------------------------------------------

    @property
    def ring(self) -> bool:
        return self.source != "plain"

    @property
    def end_to_end(self) -> bool:
        """The rows that a group takes at a time are contiguous in the ring, as in memory."""
        return self.group_rows > 1 and self.packed and self.source == "bulk"

    @property
    def pitch(self) -> tuple[int, int]:
        """Bytes from row to row in the ring: of X (and of the added array), and of the second array. An upper bound
        where rows are contiguous.
        """
        sizes = (self.most_columns * self.data_itemsize, self.most_columns * self.upstream_itemsize)
        if self.group_rows == 1 or self.end_to_end:
            return sizes
        return (round_up(sizes[0], 16) + 16, round_up(sizes[1], 16) + 16)

    @property
    def slots(self) -> tuple[int, int, int]:
        """Bytes of one stage: of X, of the second array, of the added array. A row that is not aligned
        to 16 bytes needs 16 more.
        """
        extra = 0 if self.aligned else 32
        x, d = (round_up(self.group_rows * each, 16) + extra for each in self.pitch)
        return x, d if self.needs_upstream else 0, x if self.needs_added else 0

    @property
    def exchange_slots(self) -> int:
        """Pairs of sums that the warps of a row exchange, over all its blocks: a power of two."""
        warps = self.blocks_per_row * self.group_threads // 32 if self.phase == "fused" else self.group_threads // 32
        return 1 << (warps - 1).bit_length()

    # --- shared memory: full barriers | exchange barriers | exchanged pairs | parameters | ring -----------------------

    @property
    def exchange_barriers_at(self) -> int:
        return self.groups_per_block * self.stages * 8

    @property
    def exchange_at(self) -> int:
        return round_up(self.exchange_barriers_at + self.groups_per_block * 2 * 8, 16)

    @property
    def parameters_at(self) -> int:
        return round_up(self.exchange_at + self.groups_per_block * 2 * self.exchange_slots * 2 * self.itemsize, 128)

    @property
    def bias_at(self) -> int:
        return self.parameters_at

    @property
    def inverse_scale_at(self) -> int:
        return self.parameters_at + self.parameter_bytes

    @property
    def scale_at(self) -> int:
        return self.ring_at - self.parameter_bytes

    @property
    def shared_parameter(self) -> str:
        """Type of parameters in shared memory: that of arithmetic; their own where rows need the space."""
        return self.compute if self.row_in_registers else self.parameter

    @property
    def parameter_bytes(self) -> int:
        """Of one parameter in shared memory."""
        return round_up(self.lanes * self.vectors * self.width * ITEMSIZE[self.shared_parameter], 128)

    @property
    def parameter_words(self) -> int:
        """Registers that hold a thread's part of one parameter as it is loaded, of at least 2 bytes each."""
        return self.vectors * max(self.width * self.parameter_itemsize // 4, self.width // self.scale_width)

    @property
    def shared_parameters(self) -> int:
        """How many."""
        return (0 if self.scale_in_registers else 1) + self.shared_bias + self.shared_inverse

    @property
    def ring_at(self) -> int:
        return self.parameters_at + self.shared_parameters * self.parameter_bytes

    @property
    def ring_bytes(self) -> int:
        return self.groups_per_block * self.stages * sum(self.slots) if self.ring else 0

    @property
    def shared_bytes(self) -> int:
        return self.ring_at + self.ring_bytes
