"""The constants one compiled kernel of a layer norm is made for, and what follows from them."""

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
    """All that is bound when the kernel is compiled. Everything else is an argument of the launch: so one kernel serves
    all widths that leave the last of a thread's vectors unfilled in some threads, or fill all.
    """

    operator: str
    data: str  # type of X, of skip and of their sum
    result: str  # type of Y
    parameter: str  # V
    statistic: str  # U
    outputs: frozenset[str]  # of Y, mean, inv_std and sum
    biased: bool  # there is a bias
    shifted: bool  # there is a shift, which is added to X as skip is
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
    # where scale and bias are when Y is made: in registers, shared, still in (global) memory, that is in the cache, or,
    # ahead, asked for right behind the row, so that they come to registers while it is added up
    parameters: str = "registers"
    aligned: bool = True  # rows of X start at multiples of 16 bytes
    packed: bool = True  # rows of X lie end to end
    by_units: bool = False  # vectors lie where memory has units of their size, not where rows begin: see RowConfig
    by_lines: bool = False  # rows lie in the ring as they do in memory's lines: see RowConfig
    long_rows: bool = False  # row numbers, or the bytes from row to row, need 64 bits
    native_bfloat16: bool = True
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        role = "" if self.phase == "fused" else self.phase
        shape = f"{self.slices}x{self.lanes}x{self.vectors}x{self.width}" + ("units" if self.by_units else "")
        return kernel_name(operator_words(self.operator), role, self.data, shape)

    @property
    def compute(self) -> str:
        return "float64" if "float64" in (self.data, self.result) else "float32"

    @property
    def upstream(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.data

    @property
    def read_bytes(self) -> int:
        """Of one element, in all arrays of rows."""
        return self.data_itemsize * (1 + self.skips)

    @property
    def moved_bytes(self) -> int:
        """The same, read and written."""
        result = self.result_itemsize * ("Y" in self.outputs)
        return self.read_bytes + self.data_itemsize * ("sum" in self.outputs) + result

    @property
    def centred(self) -> bool:
        """The norm has a mean."""
        return "Simplified" not in self.operator

    @property
    def skips(self) -> bool:
        """What is normalised is X + skip, with the shift if there is one."""
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
        """A row's values stay there from when they come to when they go."""
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
    def once(self) -> bool:
        """Every row has a group of its own, and a block ends with its first rows."""
        return self.parameters in ("global", "ahead")

    def fewest_vectors(self, columns: int) -> int:
        """How many of a thread's vectors it need not ask about with rows of so many columns: `certain_vectors`. About
        the last it always asks, so that one kernel serves more widths.
        """
        return min(self.vectors - 1, self.fewest_columns(columns) // (self.width * self.lanes))

    def numbers(self, columns: int, epsilon: float) -> dict[str, int]:
        """The arguments of a launch that say how wide a row is, and what is added to its variance."""
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
