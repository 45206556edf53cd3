"""From the tensors of a batch norm to a launch of the persistent kernel (persistent_kernel.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from gradkern.call import Refusal, Tensor
from gradkern.channel_kernels.persistent_form import (
    ARGUMENTS,
    Partition,
    PersistentForm,
    Sizes,
    resident_partitions,
    single_pass_partition,
)
from gradkern.cuda.device import Device
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of_form
from gradkern.strides import is_dense

__all__ = ["persistent_plan", "resident_forms", "single_pass_plan"]

_CLUSTERS = (9, 0)  # the first capability with clusters and bulk copies
_LARGE_CLUSTERS = (9, 10)  # majors that take 16 blocks; others 8
_DATA = ("D", "X", "dX")

Named = Mapping[str, tuple[str, Tensor]]
"""By the kernel's name, the contract's and the tensor; in the order of the call, inputs before outputs."""


def resident_forms(tensors: Named, device: Device) -> Iterator[tuple[PersistentForm, Partition]]:
    """Where the statistics are those of X. Raises Refusal, with the reason, where a channel cannot stay on the chip."""
    if "dX" not in tensors:
        raise Refusal("without dX nothing is read twice")
    form, sizes = _form(tensors, device, None, True), _sizes(tensors, device)
    found = list(resident_partitions(form, sizes, _most(device), device.processors))
    if not found:
        raise Refusal("a channel does not fit the shared memory of a cluster of blocks, or its planes are too small")
    yield from found


def single_pass_plan(tensors: Named, device: Device, epsilon: float) -> LaunchPlan:
    """Where the statistics are constants. Raises Refusal, with the reason, where the streaming kernel is better."""
    form = _form(tensors, device, epsilon, False)
    found = single_pass_partition(form, _sizes(tensors, device), _most(device), device.processors)
    if found is None:
        raise Refusal("the streaming kernel should take less time, or its planes are too small or too large")
    return persistent_plan(*found, device, list(tensors))


def persistent_plan(form: PersistentForm, partition: Partition, device: Device, given: list[str]) -> LaunchPlan:
    """given: the kernel's names of the tensors, in the order in which their addresses will come."""
    builder = "gradkern.channel_kernels.persistent_kernel:build"
    kernel = kernel_of_form(device, builder, form, arguments=len(ARGUMENTS), cluster=form.slices)
    resident = kernel.resident_blocks(form.threads, form.slices)
    if not resident:
        raise Refusal(f"no cluster of {form.slices} blocks of {form.threads} threads fits the device")
    arguments = [getattr(partition, name, 0) for name in ARGUMENTS]
    changing = [ARGUMENTS.index(name) for name in given]
    grid = min(resident, partition.items * form.slices)
    launch = Launch(kernel, grid, form.threads, arguments, changing, form.slices)
    return LaunchPlan(f"persistent_{form.slices}x{form.group}x{form.width}", launch)


def _form(tensors: Named, device: Device, epsilon: float | None, centred: bool) -> PersistentForm:
    types = {name: tensor.dtype.name for name, (_, tensor) in tensors.items()}
    parameter = next(types[name] for name in ("scale", "scale_sum", "bias_sum") if name in types)
    outputs = frozenset(types) & {"dX", "scale_sum", "bias_sum"}
    return PersistentForm(types["D"], parameter, types["deviation"], outputs, epsilon, centred, device.shared_bytes)


def _sizes(tensors: Named, device: Device) -> Sizes:
    if device.capability < _CLUSTERS:
        raise Refusal("it needs clusters of blocks, from compute capability 9.0")
    for name, (known, tensor) in tensors.items():
        if not is_dense(tensor):
            raise Refusal(f"{known}: it does not lie end to end in the order N, C, ...")
        if name in _DATA and tensor.alignment % 16:
            raise Refusal(f"{known}: it does not begin at a multiple of 16 bytes")
    images, channels, *spatial = tensors["X"][1].shape
    return images, channels, prod(spatial)


def _most(device: Device) -> int:
    return 16 if device.capability[0] in _LARGE_CLUSTERS else 8
