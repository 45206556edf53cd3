"""Planning without compiling, on a device that need not exist: collects the kernels that calls would need.

Within `dry_run(device)` plans are made as usual, by the same planner and operator modules, for a described device.
`kernel_of` records each kernel's spec instead of compiling and loading it. In place of a search, all candidates that it
would compile are prepared and none is run. Such plans cannot be called.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gradkern.cuda.device import Device, described
from gradkern.cuda.spec import KernelSpec


@dataclass(frozen=True, slots=True)
class DryRunDevice(Device):
    """A device that loads nothing. specs: the requested kernels in order, each once.

    there: whether it represents this machine's device with that index, so that results of searches on it are valid.
    """

    context: Any = 1  # not a context
    there: bool = False
    specs: dict[KernelSpec, None] = field(default_factory=dict[KernelSpec, None], compare=False)

    @classmethod
    def of(cls, device: Device) -> DryRunDevice:
        """A dry-run device for a device of this machine."""
        sizes = device.processors, device.shared_bytes
        return cls(device.index, device.capability, *sizes, margin=device.margin, there=True)


class UnloadedKernel:
    """A kernel of a dry run: all blocks that its launch bounds allow count as resident."""

    registers = spilled = 0
    function = None

    def __init__(self, spec: KernelSpec, device: Device, shared_bytes: int) -> None:
        self.name, self.device, self.shared_bytes = spec.name, device, shared_bytes
        self._blocks = spec.blocks_per_processor * device.processors

    def resident_blocks(self, threads: int, cluster: int = 1) -> int:
        return self._blocks // cluster * cluster


@contextmanager
def dry_run(device: Device) -> Generator[DryRunDevice]:
    """Within the block, in this thread, every device is this one, and nothing is compiled. Yields the device, that
    collects specs."""
    dry = device if isinstance(device, DryRunDevice) else DryRunDevice.of(device)
    with described(dry):
        yield dry
