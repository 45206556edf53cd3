"""What the kernels of the norms and of their gradients have in common: rows cut into slices, the ring that they reach a
block through, and where all this lies in shared memory. Nothing here imports Numba.
"""

from __future__ import annotations

from gradkern.cuda.device_code.columns import ITEMSIZE, ByColumns, up

__all__ = ["LINE", "RowConfig"]

LINE = 128  # bytes of a line of memory


class RowConfig(ByColumns):
    """What follows from a config's fields: for a frozen dataclass that has those below.

    Up to three arrays pass through the ring: X, another one, which a gradient calls upstream, and what is added to its
    result.

    Rows that lie end to end begin anywhere in memory's units of 16 bytes, 8 or 4: in all arrays alike, if their
    elements have one size. `by_units`, vectors are such units: a row's first begins up to width - 1 elements, its
    shift, before the row, and its last may end behind it; what they have of other rows is left out. Rows a `period`
    apart have one shift; a block takes only such rows, so that each of its threads has fixed columns.

    Rows that begin anywhere in memory's lines, one or several end to end, lie in a stage of the ring as in their lines,
    `by_lines`. Were they put at its start, the copy engine would ask the L2 cache for every line in parts, and for some
    sectors twice: for rows of 1336 columns of 2 bytes 2.2 times as many requests and an eighth more bytes.
    """

    __slots__ = ()

    data: str  # type of X
    upstream: str  # type of the other array
    result: str  # type of what is made of a row
    parameter: str  # V
    statistic: str  # U
    scale_width: int  # elements of scale, and of bias, that a thread loads at once
    slices: int
    stages: int
    source: str  # how rows reach the block: bulk, async (both into a ring in shared memory) or plain
    phase: str
    row_in_registers: bool
    aligned: bool
    packed: bool
    by_units: bool
    by_lines: bool
    long_rows: bool

    # --- what a kernel is; each kind has its own answers --------------------------------------------------------------

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        raise NotImplementedError

    @property
    def needs_X(self) -> bool:
        """X is read."""
        raise NotImplementedError

    @property
    def needs_upstream(self) -> bool:
        """The other array is read."""
        raise NotImplementedError

    @property
    def needs_added(self) -> bool:
        """The third array is read, which is of X's type."""
        raise NotImplementedError

    @property
    def scale_in_registers(self) -> bool:
        """Scale, and bias where each is added, are in the registers of the threads that need them; else shared."""
        raise NotImplementedError

    @property
    def shared_bias(self) -> bool:
        """Bias lies in shared memory."""
        raise NotImplementedError

    @property
    def shared_inverse(self) -> bool:
        """1 / scale lies in shared memory."""
        raise NotImplementedError

    # --- sizes --------------------------------------------------------------------------------------------------------

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.compute]

    @property
    def data_itemsize(self) -> int:
        return ITEMSIZE[self.data]

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
        """The slices of a row are the blocks of a cluster."""
        return self.slices > 1 and self.phase == "fused"

    def slice_columns(self, columns: int) -> int:
        """Columns of every slice but the last, which may have fewer: whole units of 16 bytes in every type, or whole
        lines where rows begin with one. By units with those that a row's first unit may have before it.
        """
        if self.by_units:
            columns += self.width - self.width // self.period(columns)
        whole = 64 if self.source == "bulk" and not self.by_lines else 8
        return up(-(-columns // self.slices), whole) if self.slices > 1 else columns

    def period(self, columns: int) -> int:
        """After how many rows the shift is the same again; the number of blocks is a multiple."""
        return self.width // min(self.width, columns & -columns) if self.by_units else 1

    @property
    def vector_bytes(self) -> int:
        """Of X."""
        return self.width * self.data_itemsize

    def fewest_columns(self, columns: int) -> int:
        """Of any slice, of rows of so many columns."""
        return min(self.slice_columns(columns), columns - (self.slices - 1) * self.slice_columns(columns))

    # --- the ring -----------------------------------------------------------------------------------------------------

    @property
    def ring(self) -> bool:
        return self.source != "plain"

    @property
    def end_to_end(self) -> bool:
        """The rows that a group takes at once lie in the ring as in memory."""
        return self.group_rows > 1 and self.packed and self.source == "bulk"

    @property
    def pitch(self) -> tuple[int, int]:
        """Bytes from row to row in the ring, of X, as of what is added, and of the other array; at most, where rows lie
        end to end.
        """
        sizes = (self.most_columns * self.data_itemsize, self.most_columns * self.upstream_itemsize)
        if self.group_rows == 1 or self.end_to_end:
            return sizes
        return (up(sizes[0], 16) + 16, up(sizes[1], 16) + 16)

    @property
    def filled(self) -> tuple[int, int, int]:
        """Bytes of one stage of the ring that rows fill: X's part, the other's, and that of what is added; a row that
        starts anywhere needs 16 more.
        """
        extra = 0 if self.aligned else 32
        x, d = (up(self.group_rows * each, 16) + extra for each in self.pitch)
        return x, d if self.needs_upstream else 0, x if self.needs_added else 0

    @property
    def slots(self) -> tuple[int, int, int]:
        """The same with room for rows to lie as in lines."""
        x, d, z = (up(each + LINE - 16, LINE) if self.by_lines and each else each for each in self.filled)
        return x, d, z

    @property
    def exchange_slots(self) -> int:
        """Pairs of sums that the warps of a row's group (or of a cluster) exchange: a power of two."""
        warps = self.slices * self.group_threads // 32 if self.phase == "fused" else self.group_threads // 32
        return 1 << (warps - 1).bit_length()

    # --- shared memory: full barriers | exchange barriers | exchanged pairs | parameters | ring -----------------------

    @property
    def exchange_barriers_at(self) -> int:
        return self.warp_groups * self.stages * 8

    @property
    def exchange_at(self) -> int:
        return up(self.exchange_barriers_at + self.warp_groups * 2 * 8, 16)

    @property
    def parameters_at(self) -> int:
        return up(self.exchange_at + self.warp_groups * 2 * self.exchange_slots * 2 * self.itemsize, 128)

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
        """The type of parameters in shared memory: that of arithmetic, or, where rows need the space, their own."""
        return self.compute if self.row_in_registers else self.parameter

    @property
    def parameter_bytes(self) -> int:
        """Of one parameter in shared memory."""
        return up(self.lanes * self.vectors * self.width * ITEMSIZE[self.shared_parameter], 128)

    @property
    def parameter_words(self) -> int:
        """In which a thread has what its columns have of one parameter, as loads give them; of 2 bytes at least."""
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
        return self.warp_groups * self.stages * sum(self.slots) if self.ring else 0
