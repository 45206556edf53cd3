"""Compile-time constants of the streaming kernel. Nothing here imports Numba."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradkern.cuda.device_code.columns import ByElementType, ColumnSums
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.kernels.channels.activation_alpha import without_alpha

_RESERVED = 1024  # bytes of shared memory that CUDA reserves for each block


@dataclass(frozen=True, slots=True)
class StreamingConfig(ByElementType):
    """Compile-time constants. The sizes of a Tiling are launch arguments.

    A vector is `width` elements. A thread has `vectors` vectors of every row: vector j of thread t is number
    t + j * threads of the tile.
    """

    data: str  # type of D, X, dX and all others of their shape
    parameter: str  # type of scale, bias and the results of the sums
    statistic: str  # type of mean and deviation, or of the running statistics
    outputs: frozenset[str]  # of dX, dZ, scale_sum, bias_sum; of Y where it normalises
    epsilon: float | None  # added to `deviation`, the variance; None: it is the inverse standard deviation
    width: int
    vectors: int = 1
    threads: int = 256
    stages: int = 3
    blocks_per_processor: int = 2
    source: str = "async"  # how elements reach a thread: async (through a ring in shared memory) or plain
    split: bool = False  # a vector may hold elements of several channels
    columns: bool = False  # runs are single elements, and parameters are loaded as whole vectors
    tail: bool = False  # the array does not end at the end of a vector
    has_outer: bool = False  # there are outer dimensions
    direct: bool = False  # no axis is reduced: every sum is of one element
    long: bool = False  # offsets within a row, or within a partial row, need 64 bits
    totals: bool = False  # both sums are also written unrounded
    centred: bool = False  # dX has the terms of the sums, given unrounded
    counted: bool = False  # the number of elements of a channel is a sum of counts on the device
    activation: str = "none"  # as from with_alpha; D is its gradient, or Y its result
    operands: frozenset[str] = frozenset()  # besides D and X: of D2, Y and Z; dZ, if D is read from it
    statistics: bool = False  # the sums are those of X - K, K near its mean, and of its squares
    normalises: bool = False  # Y from X and those sums
    given: bool = False  # or from a given mean and deviation
    message: bool = False  # the statistics are one message: mean, variance, m
    backward: bool = False  # from the last row of the last item to the first
    held_rows: int = 0  # rows in the ring besides its stages, for the second pass of the same launch
    reuses_ring: bool = False  # this is the second pass and starts with those rows
    held_arrays: int | None = None  # the first of `reads`: arrays that both passes of a launch read; None: all
    passing_arrays: int = 0  # arrays that only one pass reads: in a ring of `stages` rows
    native_bfloat16: bool = True
    chunk: int = 8  # and `rows_in_flight`: as in ColumnSums
    rows_in_flight: int = 4

    @property
    def name(self) -> str:
        """In a profiler."""
        role = "statistics" if self.statistics else "totals" if self.totals else "_".join(sorted(self.outputs))
        if self.activation != "none":
            role += f"_{without_alpha(self.activation)[0]}"
        shape = f"{self.threads}x{self.vectors}x{self.width}"
        return kernel_name("channels_streaming", role, self.data, shape)

    @property
    def values(self) -> int:
        """Parameters, and sums, for one vector."""
        return self.width if self.split else 1

    @property
    def ring(self) -> bool:
        return self.source == "async"

    @property
    def tile(self) -> int:
        """The most elements of a tile."""
        return self.threads * self.vectors * self.width

    @property
    def recomputes(self) -> bool:
        """The activation's input is recomputed from X, statistics, scale and bias; else Y determines the derivative."""
        made = self.statistics or self.normalises
        return self.activation != "none" and not made and "Y" not in self.operands

    @property
    def reads(self) -> tuple[str, ...]:
        """The arrays that it reads, in the order of the ring: those that another pass may need come first."""
        if self.statistics or self.normalises:
            return ("X", "Z") if self.normalises and "Z" in self.operands else ("X",)
        x = ("X",) if self.sums_scale or self.centred or self.recomputes else ()
        return (*x, "D", *(each for each in ("D2", "Y") if each in self.operands))

    @property
    def held(self) -> tuple[str, ...]:
        """The arrays of `reads` that the ring also holds for the other pass."""
        return self.reads[: self.held_arrays]

    @property
    def tile_bytes(self) -> int:
        """Of one array."""
        return self.tile * self.data_itemsize

    @property
    def stage_bytes(self) -> int:
        return len(self.held) * self.tile_bytes

    @property
    def slots(self) -> int:
        """Rows that the ring holds."""
        return self.stages + self.held_rows

    @property
    def passing_at(self) -> int:
        """Shared memory: the ring | the ring of passing_arrays | sums of a tile."""
        return self.slots * self.stage_bytes if self.ring else 0

    @property
    def sums_at(self) -> int:
        return self.passing_at + (self.stages * self.passing_arrays * self.tile_bytes if self.ring else 0)

    @property
    def sums_scale(self) -> bool:
        """It adds up D (X - mean)."""
        return self.totals or "scale_sum" in self.outputs

    @property
    def sums_bias(self) -> bool:
        """It adds up D."""
        return self.totals or "bias_sum" in self.outputs

    @property
    def sums(self) -> int:
        return self.sums_scale + self.sums_bias

    @property
    def adders(self) -> int:
        """Accumulators for one sum of one vector: at least two, for shorter dependency chains."""
        return self.width if self.split else min(2, self.width)

    @property
    def sum_bytes(self) -> int:
        """Of one sum of every vector (or element) of a tile."""
        return self.threads * self.vectors * self.values * self.itemsize

    @property
    def shared_bytes(self) -> int:
        adding = 0 if self.direct else self.sums * self.sum_bytes
        last = self.column_sums
        return max(self.sums_at + adding, last.at + last.shared_bytes if adding else 0)

    @property
    def column_sums(self) -> ColumnSums:
        """The last step: sums of partial rows, a column for each channel."""
        return ColumnSums(
            width=1,
            lanes=self.threads,
            vectors=1,
            groups_per_block=1,
            sums=max(1, self.sums),
            compute=self.compute,
            result=self.compute if self.totals else self.parameter,
            at=self.sums_at if self.held_rows else 0,
            chunk=self.chunk,
            rows_in_flight=self.rows_in_flight,
            long=self.long,
            native_bfloat16=self.native_bfloat16,
        )


def sharing_ring(config: StreamingConfig) -> StreamingConfig:
    """The first pass with a ring that also serves the second pass of the same launch."""
    first, second = config.reads, second_pass(config).reads
    both = len([name for name in first if name in second])
    if len(first) == len(second) == both:
        return config
    return replace(config, held_arrays=both, passing_arrays=max(len(first), len(second)) - both)


def with_largest_ring(config: StreamingConfig, shared_bytes: int) -> StreamingConfig:
    """`config` with the largest ring that fits shared memory: the second pass does not read again what it holds."""
    if not config.ring:
        return config
    least = replace(config, held_rows=1)
    free = (shared_bytes + _RESERVED) // config.blocks_per_processor - _RESERVED - least.shared_bytes
    return replace(least, held_rows=1 + free // config.stage_bytes) if free >= 0 else config


def second_pass(config: StreamingConfig) -> StreamingConfig:
    """The pass that needs the sums of a first pass, in reverse order: dX, or Y from statistics. In the same launch it
    begins with the rows that the first pass left in the ring.
    """
    after = replace(config, totals=False, backward=True, reuses_ring=config.held_rows > 0)
    if config.statistics:
        return replace(after, outputs=frozenset({"Y"}), statistics=False, normalises=True)
    after = replace(after, outputs=frozenset({"dX"}), centred=True)
    if "dZ" in config.outputs:  # dZ is D as it was summed
        return replace(after, activation="none", operands=frozenset({"dZ"}))
    return after
