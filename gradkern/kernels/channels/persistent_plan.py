"""From the tensors of a batch norm to a launch of the persistent kernel (persistent_kernel.py); and what the plans of
both persistent kernels share.
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
from gradkern.strides import is_dense

__all__ = [
    "DATA",
    "Named",
    "most_slices",
    "persistent_launch",
    "persistent_plan",
    "resident_configs",
    "single_pass_plan",
    "types_of",
]

_CLUSTERS = (9, 0)  # the first capability with clusters and bulk copies
_LARGE_CLUSTERS = (9, 10)  # majors that take 16 blocks; others 8
DATA = ("D", "X", "dX")

Named = Mapping[str, tuple[str, Tensor]]
"""By the kernel's name, the contract's and the tensor; in the order of the call, inputs before outputs."""


def resident_configs(tensors: Named, device: Device) -> Iterator[tuple[PersistentConfig, Partition]]:
    """Where the statistics are those of X. Raises Refusal, with the reason, where a channel cannot stay on the chip."""
    if "dX" not in tensors:
        raise Refusal("without dX nothing is read twice")
    most, sizes = most_slices(device), _sizes(tensors)
    config = PersistentConfig(*types_of(tensors), None, True, device.shared_bytes)
    found = list(resident_partitions(config, sizes, most, device.processors))
    if not found:
        raise Refusal("a channel does not fit the shared memory of a cluster of blocks, or its planes are too small")
    yield from found


def single_pass_plan(tensors: Named, device: Device, epsilon: float, most_time: float | None) -> LaunchPlan:
    """Where the statistics are constants. Raises Refusal, with the reason, where another kernel is better, which should
    take `most_time` microseconds; None: the streaming kernel.
    """
    most, sizes = most_slices(device), _sizes(tensors)
    config = PersistentConfig(*types_of(tensors), epsilon, False, device.shared_bytes)
    found = single_pass_partition(config, sizes, most, device.processors, most_time)
    if found is None:
        raise Refusal("another kernel should take less time, or its planes are too small or too large")
    return persistent_plan(*found, device, list(tensors))


def persistent_plan(config: PersistentConfig, partition: Partition, device: Device, given: list[str]) -> LaunchPlan:
    """given: the kernel's names of the tensors, in the order in which their addresses will come."""
    builder = "gradkern.kernels.channels.persistent_kernel:build"
    kernel = kernel_of_config(device, builder, config, arguments=len(ARGUMENTS), cluster=config.slices)
    name = f"persistent_{config.slices}x{config.group}x{config.width}"
    return persistent_launch(name, kernel, ARGUMENTS, partition, config.slices, config.threads, given)


def persistent_launch(
    name: str, kernel: Kernel, arguments: Sequence[str], partition: Any, slices: int, threads: int, given: list[str]
) -> LaunchPlan:
    """Of a kernel whose clusters take one item after another; the partition has all arguments that do not change."""
    resident = kernel.resident_blocks(threads, slices)
    if not resident:
        raise Refusal(f"no cluster of {slices} blocks of {threads} threads fits the device")
    values = [getattr(partition, each, 0) for each in arguments]
    changing = [arguments.index(each) for each in given]
    return LaunchPlan(name, Launch(kernel, min(resident, partition.items * slices), threads, values, changing, slices))


def types_of(tensors: Named) -> tuple[str, str, str, frozenset[str]]:
    """Of data, parameters and statistics; and the outputs."""
    types = {name: tensor.dtype.name for name, (_, tensor) in tensors.items()}
    parameter = next(types[name] for name in ("scale", "scale_sum", "bias_sum") if name in types)
    return types["D"], parameter, types["deviation"], frozenset(types) & {"dX", "scale_sum", "bias_sum"}


def most_slices(device: Device) -> int:
    """Blocks of a cluster, at most. Raises Refusal where the device has none."""
    if device.capability < _CLUSTERS:
        raise Refusal("it needs clusters of blocks, from compute capability 9.0")
    return 16 if device.capability[0] in _LARGE_CLUSTERS else 8


def _sizes(tensors: Named) -> Sizes:
    for name, (known, tensor) in tensors.items():
        if not is_dense(tensor):
            raise Refusal(f"{known}: it does not lie end to end in the order N, C, ...")
        if name in DATA and tensor.alignment % 16:
            raise Refusal(f"{known}: it does not begin at a multiple of 16 bytes")
    images, channels, *spatial = tensors["X"][1].shape
    return images, channels, prod(spatial)
