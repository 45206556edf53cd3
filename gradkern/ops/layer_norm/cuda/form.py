"""The constants one compiled layer-norm kernel is made for, and the shared memory that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.cuda.device_code.columns import ITEMSIZE, ByColumns, ColumnSums, up
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words

__all__ = ["ARGUMENTS", "Form"]

ARGUMENTS = (  # of the kernel: addresses, then numbers (strides in bytes from row to row)
    *("Y_grad", "X", "scale", "bias", "mean", "inv_std", "X_grad", "scale_grad", "bias_grad"),
    *("partial", "row_sums", "counter"),
    *("rows", "Y_grad_stride", "X_stride", "X_grad_stride"),
)


@dataclass(frozen=True, slots=True)
class Form(ByColumns):
    """All that is bound when the kernel is compiled. Everything else is an argument of the launch."""

    operator: str
    upstream: str  # G: type of Y_grad
    data: str  # type of X, or of Y for the invertible norm
    result: str  # type of X_grad
    parameter: str  # V
    statistic: str  # U
    columns: int
    outputs: frozenset[str]
    width: int
    lanes: int
    vectors: int
    teams: int
    slices: int = 1
    stages: int = 3
    scale_width: int = 1  # elements of scale, and of bias, that a thread loads at once
    source: str = "bulk"  # how rows reach the block: bulk, async (both into a ring in shared memory) or plain
    phase: str = "whole"  # whole; or, for rows too wide for one cluster: sums (of rows), then given (those sums)
    # keep a row's values in registers between its two passes, rather than read the ring again; if not, a block is one
    # team of whole warps, and the slices of a row are a cluster
    hold: bool = True
    aligned: bool = True  # rows of X and Y_grad start at multiples of 16 bytes
    packed: bool = True  # rows of X, of Y_grad and of X_grad lie end to end
    long_rows: bool = False  # row numbers need 64 bits
    native_bfloat16: bool = True
    blocks_per_processor: int = 1
    alone: bool = False  # a block has all rows of its columns, so that its sums are the result
    pace: int = 0  # how many rounds a block may be ahead of the average; 0: any
    chunk: int = 8  # final sums: threads side by side, of 4 columns each

    @property
    def name(self) -> str:
        """In a profiler."""
        role = {"whole": "", "sums": "row_sums", "given": "from_row_sums"}[self.phase]
        outputs = "" if len(self.outputs) == (3 if self.centred else 2) else "_".join(sorted(self.outputs))
        shape = f"{self.slices}x{self.lanes}x{self.vectors}x{self.width}"
        return kernel_name(operator_words(self.operator), role, outputs, self.data, self.columns, shape)

    @property
    def compute(self) -> str:
        """The type of all arithmetic."""
        return "float64" if "float64" in (self.data, self.upstream, self.result) else "float32"

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
    def parameter_itemsize(self) -> int:
        return ITEMSIZE[self.parameter]

    @property
    def statistic_itemsize(self) -> int:
        return ITEMSIZE[self.statistic]

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
    def sums(self) -> int:
        """How many parameter gradients are wanted."""
        return len(self.outputs & {"scale_grad", "bias_grad"})

    @property
    def column_sums(self) -> ColumnSums:
        """How scale_grad and bias_grad are added up, of those that are wanted."""
        return ColumnSums(
            **{name: getattr(self, name) for name in ("columns", "width", "lanes", "vectors", "teams", "slices")},
            sums=self.sums,
            compute=self.compute,
            result=self.parameter,
            at=self.ring_at,
            chunk=self.chunk,
            alone=self.alone,
            paced=self.pace > 0,
            native_bfloat16=self.native_bfloat16,
        )

    @property
    def ring(self) -> bool:
        return self.source != "plain"

    @property
    def pitch(self) -> tuple[int, int]:
        """Bytes from row to row in the ring, of X and of Y_grad."""
        sizes = (self.slice_columns * self.data_itemsize, self.slice_columns * self.upstream_itemsize)
        if self.rows_at_once == 1 or (self.packed and self.source == "bulk"):
            return sizes
        return (up(sizes[0], 16) + 16, up(sizes[1], 16) + 16)

    @property
    def slots(self) -> tuple[int, int]:
        """Bytes of one stage of the ring, X's part and Y_grad's; a row that starts anywhere needs 16 more."""
        extra = 0 if self.aligned else 32
        x, d = (up(self.rows_at_once * each, 16) + extra for each in self.pitch)
        return x, d

    @property
    def exchange_slots(self) -> int:
        """Pairs of sums that a row's team (or the teams of a cluster) exchange: a power of two."""
        warps = self.slices * self.team_threads // 32 if self.phase == "whole" else self.team_threads // 32
        return 1 << (warps - 1).bit_length()

    # Shared memory: full barriers | exchange barriers | exchanged pairs | parameters | ring, reused for the last sums
    @property
    def exchange_barriers_at(self) -> int:
        return self.teams * self.stages * 8

    @property
    def exchange_at(self) -> int:
        return up(self.exchange_barriers_at + self.teams * 2 * 8, 16)

    @property
    def parameters_at(self) -> int:
        return up(self.exchange_at + self.teams * 2 * self.exchange_slots * 2 * self.itemsize, 128)

    @property
    def shared_parameter(self) -> str:
        """The type of parameters in shared memory: that of arithmetic, or, where rows need the space, as they came."""
        return self.compute if self.hold else self.parameter

    @property
    def parameter_bytes(self) -> int:
        """Of one parameter held in shared memory."""
        return up(self.lanes * self.vectors * self.width * ITEMSIZE[self.shared_parameter], 128)

    @property
    def scale_in_registers(self) -> bool:
        """Where they suffice; else scale stays in shared memory, as the invertible norm's other parameters do."""
        return self.hold and not self.invertible and self.compute == "float32"

    @property
    def shared_parameters(self) -> int:
        """How many: scale; the invertible norm's bias and, if there is space, 1 / scale."""
        return (0 if self.scale_in_registers else 1) + ((2 if self.hold else 1) if self.invertible else 0)

    @property
    def ring_at(self) -> int:
        return self.parameters_at + self.shared_parameters * self.parameter_bytes

    @property
    def shared_bytes(self) -> int:
        ring = self.teams * self.stages * sum(self.slots) if self.ring else 0
        return self.ring_at + max(ring, self.column_sums.shared_bytes if self.sums else 0)
