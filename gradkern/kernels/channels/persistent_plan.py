"""From the tensors of a batch norm to a launch of persistent_kernel.py, for arrays in C order, or of
channels_last_kernel.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd, prod

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of_config, resident_clusters
from gradkern.kernels.channels import channels_last_config as channels_last
from gradkern.kernels.channels.channels_last_config import ChannelsLastConfig, RowsPartition, channels_last_partitions
from gradkern.kernels.channels.persistent_config import (
    ARGUMENTS,
    Partition,
    PersistentConfig,
    Sizes,
    resident_partitions,
    single_pass_partition,
)
from gradkern.kernels.channels.times import ChannelsLastTimes, SinglePassTimes, times
from gradkern.strides import is_dense

DATA = ("D", "X", "dX")
_VECTOR = 16  # bytes of channels-last arrays, at most

Named = Mapping[str, tuple[str, Tensor]]
"""The contract's name and the tensor, by the kernel's name; in the order of the call, inputs before outputs."""


def resident_configs(tensors: Named, device: Device) -> Iterator[tuple[PersistentConfig, Partition]]:
    """For statistics of X. Raises Refusal, with the reason, if a channel does not fit shared memory."""
    if "dX" not in tensors:
        raise Refusal("without dX nothing is read twice")
    most, sizes = max_cluster_size(device), _sizes(tensors)
    config = PersistentConfig(*types_of(tensors), None, True, device.shared_bytes)
    found = list(resident_partitions(config, sizes, most, device.processors))
    if not found:
        raise Refusal("a channel does not fit the shared memory of a cluster of blocks, or its planes are too small")
    yield from found


def single_pass_plan(tensors: Named, device: Device, epsilon: float) -> LaunchPlan:
    """For constant statistics. Raises Refusal, with the reason, if the streaming kernel should be faster."""
    most, sizes = max_cluster_size(device), _sizes(tensors)
    config = PersistentConfig(*types_of(tensors), epsilon, False, device.shared_bytes)
    of = times(SinglePassTimes, device.capability[0])
    found = single_pass_partition(config, sizes, most, device.processors, of)
    if found is None:
        raise Refusal("another kernel should take less time, or its planes are too small or too large")
    return persistent_plan(*found, device, list(tensors))


def fitting_partitions(tensors: Named, device: Device, activation: str = "none") -> list[RowsPartition]:
    """The partitions whose groups of channels fit shared memory, fastest first. activation: as from with_alpha. Raises
    Refusal, with the reason, if there is none.
    """
    if "dX" not in tensors:
        raise Refusal("without dX nothing is read twice")
    X = tensors["X"][1]
    order = (0, *range(2, len(X.shape)), 1)
    _require_order(tensors, order, "N, ..., C")
    channels, item = X.shape[1], X.dtype.itemsize
    vector = gcd(_VECTOR, channels * item, *(tensors[name][1].alignment for name in DATA))
    width, memory = vector // item, device.shared_bytes
    config = ChannelsLastConfig(*types_of(tensors), memory, width, activation).with_threads()
    most = max_cluster_size(device)
    clusters = {
        cluster_size: resident_clusters(device, cluster_size, config.threads)
        for cluster_size in channels_last.CLUSTER_SIZES
        if cluster_size <= most
    }
    coefficients = times(ChannelsLastTimes, device.capability[0])
    found = channels_last_partitions(config, (X.size // channels, channels), clusters, coefficients)
    if not found:
        raise Refusal("a group of its channels does not fit the shared memory of a cluster of blocks")
    return found


def persistent_plan(config: PersistentConfig, partition: Partition, device: Device, given: list[str]) -> LaunchPlan:
    """given: the kernel's names of the tensors, in the order of their addresses in a call."""
    name = f"persistent_{config.cluster_size}x{config.group}x{config.width}"
    clusters = config.cluster_size, config.cluster_size
    builder = "gradkern.kernels.channels.persistent_kernel:build"
    return _planned(builder, name, config, partition, clusters, device, ARGUMENTS, given)


def channels_last_plan(partition: RowsPartition, device: Device, given: list[str]) -> LaunchPlan:
    """The same for channels-last arrays."""
    config = partition.config
    name = f"persistent_{partition.cluster_size}x{partition.vectors}x{config.width}"
    clusters, arguments = (partition.cluster_size, max_cluster_size(device)), channels_last.ARGUMENTS
    builder = "gradkern.kernels.channels.channels_last_kernel:build"
    return _planned(builder, name, config, partition, clusters, device, arguments, given)


def _planned(
    builder: str,
    name: str,
    config: PersistentConfig | ChannelsLastConfig,
    partition: Partition | RowsPartition,
    clusters: tuple[int, int],
    device: Device,
    arguments: Sequence[str],
    given: list[str],
) -> LaunchPlan:
    """The launch of a kernel whose clusters process items in turn; the partition has all constant arguments. clusters:
    the blocks of one, and the most that the kernel is loaded for.
    """
    cluster_size, most = clusters
    kernel = kernel_of_config(device, builder, config, arguments=len(arguments), cluster=most)
    resident = kernel.resident_blocks(config.threads, cluster_size)
    if not resident:
        raise Refusal(f"no cluster of {cluster_size} blocks of {config.threads} threads fits the device")
    values = [getattr(partition, each, 0) for each in arguments]
    changing, grid = [arguments.index(each) for each in given], min(resident, partition.items * cluster_size)
    return LaunchPlan(name, Launch(kernel, grid, config.threads, values, changing, cluster_size))


def types_of(tensors: Named) -> tuple[str, str, str, frozenset[str]]:
    """The types of data, parameters and statistics, and the outputs."""
    types = {name: tensor.dtype.name for name, (_, tensor) in tensors.items()}
    parameter = next(types[name] for name in ("scale", "scale_sum", "bias_sum") if name in types)
    return types["D"], parameter, types["deviation"], frozenset(types) & {"dX", "scale_sum", "bias_sum"}


def max_cluster_size(device: Device) -> int:
    """The most blocks of a cluster. Raises Refusal if the device has no clusters."""
    if device.max_cluster_size == 1:
        raise Refusal("it needs clusters of blocks, from compute capability 9.0")
    return device.max_cluster_size


def _sizes(tensors: Named) -> Sizes:
    _require_order(tensors, None, "N, C, ...")
    for name in DATA:
        if name in tensors and tensors[name][1].alignment % 16:
            raise Refusal(f"{tensors[name][0]}: it does not begin at a multiple of 16 bytes")
    images, channels, *spatial = tensors["X"][1].shape
    return images, channels, prod(spatial)


def _require_order(tensors: Named, order: Sequence[int] | None, words: str) -> None:
    """Refuse arrays whose elements are not adjacent in this order of axes; those of fewer axes in C order."""
    for known, tensor in tensors.values():
        if not is_dense(tensor, order if order is not None and len(tensor.shape) == len(order) else None):
            raise Refusal(f"{known}: it does not lie end to end in the order {words}")
