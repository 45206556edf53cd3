"""Compile-time constants of a layer-norm kernel, and the values derived from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.ops.layer_norm.cuda.row_config import RowConfig

__all__ = ["ARGUMENTS", "NAMES", "NormForwardConfig"]

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    *("X", "skip", "shift", "scale", "bias", "Y", "mean", "inv_std", "sum", "row_sums"),
    *("rows", "X_stride", "skip_stride", "Y_stride", "sum_stride"),
    *("columns", "slice_columns", "over_columns", "epsilon"),  # the last two: as the bits of config.compute
)
NAMES = {  # of the arrays: contract name -> the kernel's
    "X": "X",
    "input": "X",
    "skip": "skip",
    "gamma": "scale",
    "beta": "bias",
    "bias": "shift",
    "Scale": "scale",
    "scale": "scale",
    "B": "bias",
    "Y": "Y",
    "output": "Y",
    "Mean": "mean",
    "mean": "mean",
    "InvStdDev": "inv_std",
    "inv_std_var": "inv_std",
    "input_skip_bias_sum": "sum",
}


@dataclass(frozen=True, slots=True)
class NormForwardConfig(RowConfig):
    """Compile-time constants. The number of columns is a launch argument: one kernel serves every width that fits its
    threads, except that `unpredicated_vectors` must lie within every row.
    """

    operator: str
    data: str  # type of X
    upstream: str  # type of the other array: of skip, and of the sum; without it the type of X
    result: str  # type of Y
    parameter: str  # V
    statistic: str  # U
    outputs: frozenset[str]  # of Y, mean, inv_std and sum
    biased: bool  # there is a bias
    shifted: bool  # a vector is added to every row of X, as skip is to X
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
    # where scale and bias are when Y is computed: registers, shared, global (in the L2 cache), or prefetched: loaded to
    # registers right after the row, while the row is added up
    parameters: str = "registers"
    aligned: bool = True  # rows of X start at multiples of 16 bytes
    packed: bool = True  # rows of X lie end to end
    aligned_vectors: bool = False  # vectors are aligned in memory, not to the begin of a row: see RowConfig
    line_aligned_stages: bool = False  # a row keeps its offset within 128-byte lines in the ring: see RowConfig
    long_rows: bool = False  # row numbers, or the bytes from row to row, need 64 bits
    native_bfloat16: bool = True
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        role = "" if self.phase == "fused" else self.phase
        shape = f"{self.blocks_per_row}x{self.lanes}x{self.vectors}x{self.width}" + "units" * self.aligned_vectors
        types = dict.fromkeys((self.data, self.upstream))
        return kernel_name(operator_words(self.operator), role, *types, shape)

    @property
    def compute(self) -> str:
        return "float64" if "float64" in (self.data, self.result) else "float32"

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
    def needs_X(self) -> bool:
        return True

    @property
    def needs_upstream(self) -> bool:
        return self.skips

    @property
    def needs_added(self) -> bool:
        return False

    @property
    def row_in_registers(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Always: a row is read once."""
        return True

    @property
    def scale_in_registers(self) -> bool:
        return self.parameters != "shared"

    @property
    def shared_bias(self) -> bool:
        return self.biased and self.parameters == "shared"

    @property
    def shared_inverse(self) -> bool:
        return False

    @property
    def shared_parameter(self) -> str:
        return self.parameter

    @property
    def shared_bytes(self) -> int:
        return self.ring_at + self.ring_bytes

    @property
    def non_persistent(self) -> bool:
        """A block ends after its first rows: every row has its own group of threads."""
        return self.parameters in ("global", "prefetched")

    def fewest_vectors(self, columns: int) -> int:
        """The value of `unpredicated_vectors` for rows of this many columns. The last vector is always checked: one
        kernel then serves more widths.
        """
        return min(self.vectors - 1, self.fewest_columns(columns) // (self.width * self.lanes))

    def numbers(self, columns: int, epsilon: float) -> dict[str, int]:
        """The launch arguments that depend on the number of columns, and epsilon."""
        over_columns, epsilon_bits = (
            int(np.array(each, self.compute).view(f"int{8 * self.itemsize}")) for each in (1 / columns, epsilon)
        )
        slice_columns = self.slice_columns(columns)
        return {
            "columns": columns,
            "slice_columns": slice_columns,
            "over_columns": over_columns,
            "epsilon": epsilon_bits,
        }
