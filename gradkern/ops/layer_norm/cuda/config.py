"""Compile-time constants of the kernels of layer norms and of their gradients, and the values derived from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from gradkern.cuda.device_code.columns import ITEMSIZE, ColumnSums, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.ops.layer_norm.cuda.row_config import RowConfig

ROWS_IN_FLIGHT = 4  # rows whose loads a thread of a column-reduction block issues before it uses the first


@dataclass(frozen=True, slots=True)
class LayerNormConfig(RowConfig):
    """Of a gradient's kernel: the second array is Y_grad, the result X_grad."""

    single_block: bool = False  # one block has all rows of its columns: its sums are the result
    chunk: int = 8  # and `rows_in_flight`: of the last step of the sums over rows, as in ColumnSums
    rows_in_flight: int = 4
    residual: bool = False  # a gradient of X's type is added to X_grad
    branch: str = ""  # type of branch_grad, where it is requested
    # threads side by side of a column-reduction block (column_blocks); 0: blocks with rows also reduce over rows
    reduction_lanes: int = 0
    reduction_vectors: int = 1  # of a thread
    reduction_cluster_size: int = 1  # blocks that share the rows of one group of columns

    @property
    def name(self) -> str:
        role = "" if self.phase == "fused" else self.phase
        gradients = self.outputs - {"X_grad_sum", "branch_grad"}
        outputs = "" if len(gradients) == (3 if self.centred else 2) else "_".join(sorted(gradients))
        summed = "X_grad_sum" if "X_grad_sum" in self.outputs else ""
        shape = self.shape + "units" * self.aligned_vectors
        added = "residual" if self.residual else ""
        branch = f"branch_{self.branch}" if self.branch else ""
        reduction = f"column_blocks_{self.reduction_cluster_size}x{self.reduction_lanes}x{self.reduction_vectors}"
        reduction = reduction if self.separate_reduction else ""
        return kernel_name(
            operator_words(self.operator), role, outputs, summed, added, branch, self.data, shape, reduction
        )

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
        """The outputs that blocks with rows write in this launch."""
        if self.phase == "row_sums":
            return frozenset()
        return self.outputs - {"scale_grad", "bias_grad"} if self.separate_reduction else self.outputs

    @property
    def separate_reduction(self) -> bool:
        """Separate column-reduction blocks compute scale_grad and bias_grad: see column_blocks."""
        return self.reduction_lanes > 0

    @property
    def reduction_columns(self) -> int:
        """Columns of a column-reduction block."""
        return self.reduction_lanes * self.reduction_vectors * self.width

    @property
    def reduction_rows(self) -> int:
        """Rows that a column-reduction block loads at a time."""
        return self.threads // self.reduction_lanes * ROWS_IN_FLIGHT

    @property
    def reduction_warp_groups(self) -> int:
        """Groups of whole warps of a column-reduction block. Each has all its columns, and different rows."""
        return self.threads // max(32, self.reduction_lanes)

    @property
    def has_second_pass(self) -> bool:
        """X_grad is computed: written, in one type or two, or summed."""
        return bool(self.written & {"X_grad", "X_grad_sum", "branch_grad"})

    @property
    def second_result_itemsize(self) -> int:
        return ITEMSIZE[self.branch or self.result]

    @property
    def row_terms(self) -> bool:
        """s1 and s2 of a row are needed."""
        return self.has_second_pass or self.phase == "row_sums"

    @property
    def needs_X(self) -> bool:
        return self.row_terms or "scale_grad" in self.written

    @property
    def needs_added(self) -> bool:
        return self.residual and self.has_second_pass

    @property
    def refills_early(self) -> bool:
        """A stage of the ring is refilled before X_grad is computed: X_grad needs nothing from it."""
        return self.row_in_registers and not self.needs_added

    @property
    def scales_sums(self) -> bool:
        """r multiplies a row's sums instead of every X - mean."""
        return not self.row_in_registers and not self.invertible

    def fewest_vectors(self, columns: int) -> int:
        """The value of `unpredicated_vectors` for rows of this many columns.

        The last vector is always checked where a check is nearly free: one kernel then serves more widths. Every vector
        is checked where the ring is read twice: without these branches the compiler delays the additions to the sums
        over rows until all vectors are loaded, and runs out of registers.
        """
        if not self.row_in_registers:
            return 0
        fewest = self.fewest_columns(columns) // (self.width * self.lanes)
        return min(self.vectors - (1 if self.zero_padded else 0), fewest)

    @property
    def sums(self) -> int:
        """Number of sums over rows that blocks with rows compute."""
        return 0 if self.separate_reduction else len(self.outputs & {"scale_grad", "bias_grad", "X_grad_sum"})

    @property
    def waits_for_grid(self) -> bool:
        return self.sums > 0 and not self.single_block and self.phase != "row_sums"

    def partial_bytes(self, columns: int) -> int:
        return self.column_sums.partial_bytes(columns) if self.waits_for_grid else 0

    @property
    def non_persistent(self) -> bool:
        return self.separate_reduction  # no block waits for another: they may run in any order

    def grid(self, resident: int, wanted: int, columns: int, processors: int) -> int:
        together = self.blocks_together(columns)
        most = processors * self.blocks_per_processor // together * together
        resident = min(resident, max(most, self.blocks_per_row))  # more blocks would write more partial sums
        if self.single_block or self.waits_for_grid:
            return self.blocks_per_row if self.single_block else resident
        if self.separate_reduction:
            wanted = round_up(self.column_blocks(columns), self.blocks_per_row) + wanted
            wanted = round_up(wanted, self.launch_cluster)
        return RowConfig.grid(self, resident, wanted, columns, processors)

    @property
    def phases(self) -> tuple[Self, ...]:
        return (replace(self, phase="row_sums"), self) if self.phase == "apply" and self.has_second_pass else (self,)

    @property
    def column_sums(self) -> ColumnSums:
        """The reduction of scale_grad, bias_grad and X_grad_sum, those that are requested, over rows."""
        return ColumnSums(
            **{name: getattr(self, name) for name in ("width", "lanes", "vectors", "groups_per_block")},
            unpredicated_vectors=self.unpredicated_vectors,
            sums=self.sums,
            compute=self.compute,
            result=self.parameter,
            at=self.ring_at,
            chunk=self.chunk,
            rows_in_flight=self.rows_in_flight,
            single_block=self.single_block,
            aligned_vectors=self.aligned_vectors,
            long=self.long_rows,
            native_bfloat16=self.native_bfloat16,
        )

    @property
    def zero_padded(self) -> bool:
        """Zeros follow a row in the ring up to the last vector of its threads. They change no sum, so reads need no
        bounds check. Not possible where a row may end anywhere in a stage. Not used where scale is in shared memory
        too: the loop over rows was longer there.
        """
        anywhere = self.end_to_end or self.aligned_vectors
        return self.source == "bulk" and self.aligned and not anywhere and self.scale_in_registers

    @property
    def scale_in_registers(self) -> bool:
        """Scale is in registers, where these suffice. Else it is in shared memory, as the invertible norm's bias is."""
        return self.row_in_registers and not self.invertible and self.compute == "float32"

    @property
    def copies_parameters(self) -> bool:
        return not self.scale_in_registers

    @property
    def shared_bias(self) -> bool:
        return self.invertible

    @property
    def shared_inverse(self) -> bool:
        return self.invertible and self.row_in_registers

    @property
    def shared_bytes(self) -> int:
        sums = self.column_sums.shared_bytes if self.sums else 0
        if self.separate_reduction:  # of a block's groups of warps, then of a cluster's blocks
            sums = self.reduction_warp_groups + (self.reduction_cluster_size if self.reduction_cluster_size > 1 else 0)
            sums *= 2 * self.reduction_columns * self.itemsize
        return self.ring_at + max(self.ring_bytes, sums)

    @property
    def launch_cluster(self) -> int:
        """Blocks of a cluster of the launch: those that share a row, or those that share columns (column_blocks)."""
        return max(self.blocks_per_row if self.cluster else 1, self.reduction_cluster_size)

    def column_blocks(self, columns: int) -> int:
        """Number of column-reduction blocks."""
        return -(-columns // self.reduction_columns) * self.reduction_cluster_size


@dataclass(frozen=True, slots=True)
class NormForwardConfig(RowConfig):
    """Of a norm's kernel: the second array is skip, whose type is also the sum's; the result is Y. Outputs are of Y,
    mean, inv_std and sum.
    """

    biased: bool = False  # there is a bias
    shifted: bool = False  # a vector is added to every row of X, as skip is to X
    # where scale and bias are when Y is computed: registers, shared, or prefetched: loaded to registers right after the
    # row, while the row is added up
    parameters: str = "registers"

    @property
    def name(self) -> str:
        role = "" if self.phase == "fused" else self.phase
        shape = self.shape + "units" * self.aligned_vectors
        types = dict.fromkeys((self.data, self.upstream))
        return kernel_name(operator_words(self.operator), role, *types, shape)

    @property
    def read_bytes(self) -> int:
        """Of one element, in all arrays of rows."""
        return self.data_itemsize + self.upstream_itemsize * self.skips

    @property
    def moved_bytes(self) -> int:
        """The same, read and written."""
        result = self.result_itemsize * ("Y" in self.outputs)
        return self.read_bytes + self.upstream_itemsize * ("sum" in self.outputs) + result

    @property
    def centred(self) -> bool:
        """The norm has a mean."""
        return "Simplified" not in self.operator

    @property
    def skips(self) -> bool:
        """The input of the norm is X + skip, plus the shift if there is one."""
        return self.operator.startswith("Skip")

    @property
    def written(self) -> frozenset[str]:
        """The outputs of this launch."""
        return self.outputs if self.phase != "row_sums" else frozenset()

    @property
    def needs_upstream(self) -> bool:
        return self.skips

    @property
    def has_second_pass(self) -> bool:
        return self.phase != "row_sums"

    @property
    def second_result_itemsize(self) -> int:
        return self.upstream_itemsize

    @property
    def scale_in_registers(self) -> bool:
        return self.parameters != "shared"

    @property
    def copies_parameters(self) -> bool:
        return self.parameters == "shared" and "Y" in self.written

    @property
    def shared_bias(self) -> bool:
        return self.biased and self.parameters == "shared"

    @property
    def shared_parameter(self) -> str:
        return self.parameter

    @property
    def non_persistent(self) -> bool:
        return self.parameters == "prefetched"

    def fewest_vectors(self, columns: int) -> int:
        """The value of `unpredicated_vectors` for rows of this many columns. The last vector is always checked: one
        kernel then serves more widths.
        """
        return min(self.vectors - 1, self.fewest_columns(columns) // (self.width * self.lanes))
