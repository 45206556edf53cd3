"""The constants one compiled kernel of a layer norm's gradient is made for, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradkern.cuda.device_code.columns import ColumnSums
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.ops.layer_norm.cuda.row_config import RowConfig

__all__ = ["ARGUMENTS", "ROWS_AHEAD", "LayerNormConfig"]

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    # the fourth: the invertible norm's bias, or the others' X_grad_sum: no config has both
    *("Y_grad", "X", "scale", "bias_or_X_grad_sum", "mean", "inv_std", "residual", "X_grad", "scale_grad", "bias_grad"),
    *("partial", "row_sums", "counter"),
    *("rows", "Y_grad_stride", "X_stride", "residual_stride", "X_grad_stride"),
    *("columns", "slice_columns", "minus_mean"),  # the last: -1 / columns, as the bits of config.compute
)

ROWS_AHEAD = 4  # of a stripe of columns, that a thread has under way at once


@dataclass(frozen=True, slots=True)
class LayerNormConfig(RowConfig):
    """All that is bound when the kernel is compiled. Everything else is an argument of the launch: so one kernel serves
    all widths that leave the last of a thread's vectors unfilled in some threads, or fill all.
    """

    operator: str
    upstream: str  # G: type of Y_grad
    data: str  # type of X, or of Y for the invertible norm
    result: str  # type of X_grad
    parameter: str  # V
    statistic: str  # U
    outputs: frozenset[str]
    width: int
    lanes: int
    vectors: int
    warp_groups: int
    slices: int = 1
    certain_vectors: int = 0  # so many of a thread's vectors it need not ask about: they lie within every row
    stages: int = 3
    scale_width: int = 1  # elements of scale, and of bias, that a thread loads at once
    source: str = "bulk"  # how rows reach the block: bulk, async (both into a ring in shared memory) or plain
    phase: str = "fused"  # one launch; for rows too wide for a cluster two: row_sums, then apply, which reads them
    # a row's values stay in registers between its two passes; if not, the ring is read again, a block is one group of
    # warps, and the slices of a row are a cluster
    row_in_registers: bool = True
    aligned: bool = True  # rows of X and Y_grad start at multiples of 16 bytes
    packed: bool = True  # rows of X, of Y_grad and of X_grad lie end to end
    by_units: bool = False  # vectors lie where memory has units of their size, not where rows begin: see RowConfig
    by_lines: bool = False  # rows lie in the ring as they do in memory's lines: see RowConfig
    long_rows: bool = False  # row numbers, or the bytes from row to row, need 64 bits
    native_bfloat16: bool = True
    blocks_per_processor: int = 1
    single_block: bool = False  # a block has all rows of its columns, so that its sums are the result
    chunk: int = 8  # and `ahead`: of the final sums, as in ColumnSums
    ahead: int = 4
    residual: bool = False  # a gradient of X's type is added to X_grad
    # not 0: blocks of their own add up scale_grad and bias_grad, each of a stripe of columns that so many threads have
    stripe_lanes: int = 0
    stripe_vectors: int = 1  # of a thread
    stripe_blocks: int = 1  # a cluster that shares the rows of a stripe, where rows are not in slices

    @property
    def name(self) -> str:
        """In a profiler."""
        role = "" if self.phase == "fused" else self.phase
        gradients = self.outputs - {"X_grad_sum"}
        outputs = "" if len(gradients) == (3 if self.centred else 2) else "_".join(sorted(gradients))
        summed = "X_grad_sum" if "X_grad_sum" in self.outputs else ""
        shape = f"{self.slices}x{self.lanes}x{self.vectors}x{self.width}" + ("units" if self.by_units else "")
        added = "residual" if self.residual else ""
        stripe = f"column_blocks_{self.stripe_blocks}x{self.stripe_lanes}x{self.stripe_vectors}"
        stripe = stripe if self.sums_apart else ""
        return kernel_name(operator_words(self.operator), role, outputs, summed, added, self.data, shape, stripe)

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if "float64" in (self.data, self.upstream, self.result) else "float32"

    @property
    def has_mean(self) -> bool:
        return self.operator == "LayerNormalizationGrad"

    @property
    def invertible(self) -> bool:
        return self.operator == "InvertibleLayerNormalizationGrad"

    @property
    def centred(self) -> bool:
        """X_grad has the term of s1."""
        return self.operator != "SimplifiedLayerNormalizationGrad"

    @property
    def written(self) -> frozenset[str]:
        """The outputs that the blocks with the rows write in this launch."""
        if self.phase == "row_sums":
            return frozenset()
        return self.outputs - {"scale_grad", "bias_grad"} if self.sums_apart else self.outputs

    @property
    def sums_apart(self) -> bool:
        """Blocks of their own make scale_grad and bias_grad: see column_blocks."""
        return self.stripe_lanes > 0

    @property
    def stripe(self) -> int:
        """Columns of such a block."""
        return self.stripe_lanes * self.stripe_vectors * self.width

    @property
    def stripe_rows(self) -> int:
        """Rows that such a block has under way at once."""
        return self.threads // self.stripe_lanes * ROWS_AHEAD

    @property
    def stripe_teams(self) -> int:
        """Of such a block's threads, whole warps: each has all columns, and other rows."""
        return self.threads // max(32, self.stripe_lanes)

    @property
    def makes_X_grad(self) -> bool:
        """X_grad is computed: written, or summed, or both."""
        return bool(self.written & {"X_grad", "X_grad_sum"})

    @property
    def row_terms(self) -> bool:
        """s1 and s2 of a row are needed."""
        return self.makes_X_grad or self.phase == "row_sums"

    @property
    def needs_X(self) -> bool:
        return self.row_terms or "scale_grad" in self.written

    @property
    def needs_upstream(self) -> bool:
        return True

    @property
    def needs_added(self) -> bool:
        return self.residual and self.makes_X_grad

    @property
    def refills_early(self) -> bool:
        """A stage of the ring is filled again before X_grad is made, which needs nothing from it."""
        return self.row_in_registers and not self.needs_added

    @property
    def scales_sums(self) -> bool:
        """r multiplies a row's sums, and not every X - mean."""
        return not self.row_in_registers and not self.invertible

    def fewest_vectors(self, columns: int) -> int:
        """How many of a thread's vectors it need not ask about with rows of so many columns: `certain_vectors`.

        About the last each thread asks where that costs next to nothing, so that one kernel serves more widths; and
        about every one where the ring is read twice: without these branches the compiler puts off adding to the sums
        over rows until it has loaded all the vectors, and runs out of registers.
        """
        if not self.row_in_registers:
            return 0
        fewest = self.fewest_columns(columns) // (self.width * self.lanes)
        return min(self.vectors - (1 if self.zero_padded else 0), fewest)

    @property
    def sums(self) -> int:
        """How many sums over rows are wanted of the blocks that have the rows."""
        return 0 if self.sums_apart else len(self.outputs & {"scale_grad", "bias_grad", "X_grad_sum"})

    @property
    def waits_for_grid(self) -> bool:
        """Sums over rows lie in scratch memory, by block, until all blocks have theirs there."""
        return self.sums > 0 and not self.single_block and self.phase != "row_sums"

    @property
    def column_sums(self) -> ColumnSums:
        """How scale_grad, bias_grad and X_grad_sum are added up, of those that are wanted."""
        return ColumnSums(
            **{name: getattr(self, name) for name in ("width", "lanes", "vectors", "warp_groups")},
            certain_vectors=self.certain_vectors,
            sums=self.sums,
            compute=self.compute,
            result=self.parameter,
            at=self.ring_at,
            chunk=self.chunk,
            ahead=self.ahead,
            single_block=self.single_block,
            by_units=self.by_units,
            long=self.long_rows,
            native_bfloat16=self.native_bfloat16,
        )

    @property
    def zero_padded(self) -> bool:
        """In the ring zeros follow a row, as far as its threads have vectors: they take them for elements, which change
        no sum, and need to ask only where they write. Not where rows end anywhere in a stage, nor where scale lies in
        shared memory, too: it made the loop over rows longer there.
        """
        anywhere = self.end_to_end or self.by_lines or self.by_units
        return self.source == "bulk" and self.aligned and not anywhere and self.scale_in_registers

    @property
    def scale_in_registers(self) -> bool:
        """Where they suffice; else scale stays in shared memory, as the invertible norm's other parameters do."""
        return self.row_in_registers and not self.invertible and self.compute == "float32"

    @property
    def shared_bias(self) -> bool:
        return self.invertible

    @property
    def shared_inverse(self) -> bool:
        return self.invertible and self.row_in_registers

    @property
    def shared_bytes(self) -> int:
        sums = self.column_sums.shared_bytes if self.sums else 0
        if self.sums_apart:  # of a block's teams, then of a cluster's blocks
            sums = self.stripe_teams + (self.stripe_blocks if self.stripe_blocks > 1 else 0)
            sums *= 2 * self.stripe * self.itemsize
        return self.ring_at + max(self.ring_bytes, sums)

    @property
    def launch_cluster(self) -> int:
        """Blocks of a cluster of the launch: they have the slices of a row, or share the rows of a stripe."""
        return max(self.slices if self.phase == "fused" else 1, self.stripe_blocks)

    def column_blocks(self, columns: int) -> int:
        """How many blocks have columns."""
        return -(-columns // self.stripe) * self.stripe_blocks

    def sizes(self, columns: int) -> dict[str, int]:
        """The arguments of a launch that say how wide a row is."""
        minus_mean = np.array(-1 / columns, self.compute).view(f"int{8 * self.itemsize}")
        return {"columns": columns, "slice_columns": self.slice_columns(columns), "minus_mean": int(minus_mean)}
