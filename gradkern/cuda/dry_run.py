"""Planning without compiling, on a device that need not exist: collects the kernels that calls would need.

Within `dry_run(device)` plans are made as always, by the same planner and the same modules of operators, for a device
that is described; but `kernel_of` writes down each kernel's spec in place of compiling and loading it, and where a
search would be made, all candidates that it would compile are prepared and none is run. Such plans cannot be called.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gradkern.cuda.device import Device, described
from gradkern.cuda.spec import KernelSpec

__all__ = ["DryRunDevice", "UnloadedKernel", "dry_run"]


@dataclass(frozen=True, slots=True)
class DryRunDevice(Device):
    """A device that loads nothing. specs: the requested kernels in order, each once.

    there: whether it stands for the device of this machine with that index, so that results of searches on it hold.
    """

    context: Any = 1  # not a context
    there: bool = False
    specs: dict[KernelSpec, None] = field(default_factory=dict[KernelSpec, None], compare=False)

    @classmethod
    def of(cls, device: Device) -> DryRunDevice:
        """In place of a device of this machine."""
        sizes = device.processors, device.shared_bytes
        return cls(device.index, device.capability, *sizes, margin=device.margin, there=True)


class UnloadedKernel:
    """What stands for a kernel of a dry run: every block that its launch bounds admit is resident."""

    registers = spilled = 0
    function = None

    def __init__(self, spec: KernelSpec, device: Device, shared_bytes: int) -> None:
        self.name, self.device, self.shared_bytes = spec.name, device, shared_bytes
        self._blocks = spec.blocks_per_processor * device.processors

    def resident_blocks(self, threads: int, cluster: int = 1) -> int:
        return self._blocks // cluster * cluster


@contextmanager
def dry_run(device: Device) -> Generator[DryRunDevice]:
    """All devices are this one within the block, in this thread, and nothing is compiled; yields what is written to."""
    dry = device if isinstance(device, DryRunDevice) else DryRunDevice.of(device)
    with described(dry):
        yield dry
