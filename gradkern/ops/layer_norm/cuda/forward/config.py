"""Compile-time constants of a layer-norm kernel, and the values derived from them."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.ops.layer_norm.cuda.row_config import RowConfig


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
