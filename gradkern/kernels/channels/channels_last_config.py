"""Compile-time constants of the persistent kernel of channels-last arrays; how an array is distributed to blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Self

from gradkern.cuda.device_code.columns import ByElementType, round_up
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.kernels.channels.activation_alpha import without_alpha
from gradkern.kernels.channels.times import ChannelsLastTimes

ARGUMENTS = (  # of the kernel: addresses, then numbers
    *("D", "X", "scale", "bias", "mean", "deviation", "dX", "scale_sum", "bias_sum"),
    *("items", "channels", "rows", "row_bytes", "vectors", "cluster_size", "steps", "warps_at", "blocks_at", "data_at"),
)
PARTS = 4  # groups of an item's copies, each with its own wait
CLUSTER_SIZES = (1, 2, 4, 8, 16)
CHANNELS_AT = 16  # in shared memory, after two barriers of exchanges
_SECTOR = 32  # bytes: the smallest access to memory
_MOST_VECTORS = 32  # of a row, as many as a warp has lanes


@dataclass(frozen=True, slots=True)
class ChannelsLastConfig(ByElementType):
    """Compile-time constants. The sizes of RowsPartition are launch arguments."""

    data: str  # type of D, X and dX
    parameter: str  # of scale, bias and the sums
    statistic: str  # of mean and of the inverse standard deviation
    outputs: frozenset[str]  # dX, and of scale_sum, bias_sum
    shared_bytes: int
    width: int  # channels of a vector
    activation: str = "none"  # as from with_alpha: D is its gradient; its input follows from X, scale and bias
    threads: int = 256
    blocks_per_processor: int = 1

    @property
    def name(self) -> str:
        """In a profiler."""
        role = "" if self.activation == "none" else without_alpha(self.activation)[0]
        return kernel_name("channels_last_persistent", "_".join(sorted(self.outputs)), role, self.data, self.width)

    @property
    def pair(self) -> int:
        """Bytes of two numbers of arithmetic."""
        return 2 * self.itemsize

    @property
    def vector(self) -> int:
        """Bytes."""
        return self.width * self.data_itemsize

    @property
    def by_registers(self) -> bool:
        """Vectors are single elements of 2 bytes: asynchronous copies need at least 4."""
        return self.vector < 4

    @property
    def warps(self) -> int:
        return self.threads // 32

    def with_threads(self) -> Self:
        """The config with the fastest number of threads on an H200: where elements are copied through registers, 512
        threads with eight elements at a time took 0.6 to 1.0 of the time of 256 with four.
        """
        return replace(self, threads=512) if self.by_registers else self


@dataclass(frozen=True, slots=True)
class RowsPartition:
    """Sizes of one launch. Most are arguments of the kernel with these names.

    Shared memory: two barriers of exchanges | pairs of each channel: mean and gain; shift and slope; with an activation
    the bias | sums of the warps | sums of the cluster's blocks, twice | D | X
    """

    config: ChannelsLastConfig
    channels: int
    rows: int  # elements of a channel
    vectors: int  # of a row, contiguous, in an item
    cluster_size: int  # blocks of a cluster, each with a part of the rows
    clusters: int  # resident on the device

    @property
    def row_bytes(self) -> int:
        return self.channels * self.config.data_itemsize

    @property
    def items(self) -> int:
        """Groups of channels."""
        return -(-self.row_bytes // (self.vectors * self.config.vector))

    @property
    def at_once(self) -> int:
        """Rows that a block's threads process at a time: whole rows for every warp."""
        return self.config.warps * (32 // self.vectors)

    @property
    def steps(self) -> int:
        """Rows of a thread, at most."""
        rows_each = -(-self.rows // self.cluster_size)
        return -(-rows_each // self.at_once)

    @property
    def _pairs(self) -> int:
        """Bytes of a pair of each channel of a group."""
        return self.vectors * self.config.width * self.config.pair

    @property
    def warps_at(self) -> int:
        return CHANNELS_AT + (2 if self.config.activation == "none" else 3) * self._pairs

    @property
    def blocks_at(self) -> int:
        return self.warps_at + self.config.warps * self._pairs

    @property
    def data_at(self) -> int:
        return round_up(self.blocks_at + (2 * self.cluster_size * self._pairs if self.cluster_size > 1 else 0), 128)

    @property
    def shared_bytes(self) -> int:
        return self.data_at + 2 * self.steps * self.at_once * self.vectors * self.config.vector


def channels_last_partitions(
    config: ChannelsLastConfig, size: tuple[int, int], clusters: Mapping[int, int], coefficients: ChannelsLastTimes
) -> list[RowsPartition]:
    """The partitions that fit shared memory, fastest first. size: rows and channels; clusters: the number of resident
    clusters by cluster size.
    """
    rows, channels = size
    whole = channels // config.width  # vectors of a row
    aligned = max(1, _SECTOR // config.vector)
    counts = [min(count, whole) for count in range(aligned, min(_MOST_VECTORS, whole + aligned - 1) + 1, aligned)]
    made = (RowsPartition(config, channels, rows, count, *each) for each in clusters.items() for count in counts)
    fitting = [
        each
        for each in made
        if each.clusters and each.cluster_size <= rows and each.shared_bytes <= config.shared_bytes
    ]
    return sorted(fitting, key=lambda each: persistent_time(each, coefficients))


def persistent_time(partition: RowsPartition, of: ChannelsLastTimes) -> float:
    """Predicted microseconds of the kernel. Vectors of 4 and 8 bytes take longer than predicted."""
    config, cluster_size = partition.config, partition.cluster_size
    rounds = -(-partition.items // partition.clusters)
    part = partition.vectors * config.vector  # bytes of a row
    launch, step = (of.launch_by_registers, of.step_by_registers) if config.by_registers else (of.launch, of.step)
    moved = 3 * partition.rows * partition.row_bytes
    together = moved / of.bandwidth * (1 + of.short_rows / part)
    alone = rounds * partition.steps * max(3 * partition.at_once * part / of.block_bandwidth, step)
    each = of.round + (of.exchange if cluster_size > 1 else 0)
    return launch + of.doubling * log2(cluster_size) + rounds * each + (together**4 + alone**4) ** (1 / 4)


def streaming_time(partition: RowsPartition, of: ChannelsLastTimes) -> float:
    """Predicted microseconds of the streaming kernel."""
    return of.streaming + 3 * partition.rows * partition.row_bytes / of.streamed
