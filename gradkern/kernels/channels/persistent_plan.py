"""From the tensors of a batch norm to a launch of the persistent kernel (persistent_kernel.py), and code shared by the
plans of both persistent kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Kernel, Launch, LaunchPlan, kernel_of_config
from gradkern.kernels.channels.persistent_config import (
    ARGUMENTS,
    Partition,
    PersistentConfig,
    Sizes,
    resident_partitions,
    single_pass_partition,
)
from gradkern.kernels.channels.times import SinglePassTimes, times
from gradkern.strides import is_dense

DATA = ("D", "X", "dX")

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


def persistent_plan(config: PersistentConfig, partition: Partition, device: Device, given: list[str]) -> LaunchPlan:
    """given: the kernel's names of the tensors, in the order of their addresses in a call."""
    builder = "gradkern.kernels.channels.persistent_kernel:build"
    kernel = kernel_of_config(device, builder, config, arguments=len(ARGUMENTS), cluster=config.cluster_size)
    name = f"persistent_{config.cluster_size}x{config.group}x{config.width}"
    return persistent_launch(name, kernel, ARGUMENTS, partition, config.cluster_size, config.threads, given)


def persistent_launch(
    name: str,
    kernel: Kernel,
    arguments: Sequence[str],
    partition: Any,
    cluster_size: int,
    threads: int,
    given: list[str],
) -> LaunchPlan:
    """The launch of a kernel whose clusters process items in turn; the partition has all constant arguments."""
    resident = kernel.resident_blocks(threads, cluster_size)
    if not resident:
        raise Refusal(f"no cluster of {cluster_size} blocks of {threads} threads fits the device")
    values = [getattr(partition, each, 0) for each in arguments]
    changing = [arguments.index(each) for each in given]
    return LaunchPlan(
        name, Launch(kernel, min(resident, partition.items * cluster_size), threads, values, changing, cluster_size)
    )


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
    for name, (known, tensor) in tensors.items():
        if not is_dense(tensor):
            raise Refusal(f"{known}: it does not lie end to end in the order N, C, ...")
        if name in DATA and tensor.alignment % 16:
            raise Refusal(f"{known}: it does not begin at a multiple of 16 bytes")
    images, channels, *spatial = tensors["X"][1].shape
    return images, channels, prod(spatial)
