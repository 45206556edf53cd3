"""From the tensors of a batch norm to a launch of the persistent kernel of channels-last arrays."""

from __future__ import annotations

from math import gcd

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.launch import LaunchPlan, kernel_of_config, resident_clusters
from gradkern.kernels.channels.channels_last_config import (
    ARGUMENTS,
    CLUSTER_SIZES,
    ChannelsLastConfig,
    RowsPartition,
    channels_last_partitions,
)
from gradkern.kernels.channels.persistent_plan import DATA, Named, max_cluster_size, persistent_launch, types_of
from gradkern.kernels.channels.times import ChannelsLastTimes, times
from gradkern.strides import is_dense

_VECTOR = 16  # bytes, at most


def fitting_partitions(tensors: Named, device: Device, activation: str = "none") -> list[RowsPartition]:
    """The partitions whose groups of channels fit shared memory, fastest first. activation: as from with_alpha. Raises
    Refusal, with the reason, if there is none.
    """
    if "dX" not in tensors:
        raise Refusal("without dX nothing is read twice")
    X = tensors["X"][1]
    order = (0, *range(2, len(X.shape)), 1)
    for known, tensor in tensors.values():
        if not is_dense(tensor, order if len(tensor.shape) == len(order) else None):
            raise Refusal(f"{known}: it does not lie end to end in the order N, ..., C")
    channels, item = X.shape[1], X.dtype.itemsize
    vector = gcd(_VECTOR, channels * item, *(tensors[name][1].alignment for name in DATA))
    width, memory = vector // item, device.shared_bytes
    config = ChannelsLastConfig(*types_of(tensors), memory, width, activation).with_threads()
    most = max_cluster_size(device)
    clusters = {
        cluster_size: resident_clusters(device, cluster_size, config.threads)
        for cluster_size in CLUSTER_SIZES
        if cluster_size <= most
    }
    coefficients = times(ChannelsLastTimes, device.capability[0])
    found = channels_last_partitions(config, (X.size // channels, channels), clusters, coefficients)
    if not found:
        raise Refusal("a group of its channels does not fit the shared memory of a cluster of blocks")
    return found


def channels_last_plan(partition: RowsPartition, device: Device, given: list[str]) -> LaunchPlan:
    """given: the kernel's names of the tensors, in the order of their addresses in a call."""
    config, cluster_size = partition.config, partition.cluster_size
    builder = "gradkern.kernels.channels.channels_last_kernel:build"
    kernel = kernel_of_config(device, builder, config, arguments=len(ARGUMENTS), cluster=max_cluster_size(device))
    name = f"persistent_{cluster_size}x{partition.vectors}x{config.width}"
    return persistent_launch(name, kernel, ARGUMENTS, partition, cluster_size, config.threads, given)
