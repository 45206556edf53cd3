"""Planning without compiling, on a device that need not exist: collects the kernels that calls would need.

Within `dry_run(device)` plans are made as usual, by the same planner and operator modules, for a described device.
`kernel_of` records each kernel's spec instead of compiling and loading it. In place of a search, all candidates that it
would compile are prepared and none is run. Such plans cannot be called.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
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


# --- known GPUs -------------------------------------------------------------------------------------------------------

_KB = 1024
_TURING, _LARGE, _SMALL, _HOPPER = 64 * _KB, 163 * _KB, 99 * _KB, 227 * _KB

GPUS: Mapping[str, tuple[tuple[int, int], int, int]] = MappingProxyType(
    {
        "T4": ((7, 5), 40, _TURING),
        "A100": ((8, 0), 108, _LARGE),
        "A10": ((8, 6), 72, _SMALL),
        "GeForce RTX 3090": ((8, 6), 82, _SMALL),
        "L4": ((8, 9), 58, _SMALL),
        "GeForce RTX 4090": ((8, 9), 128, _SMALL),
        "L40S": ((8, 9), 142, _SMALL),
        "H100 PCIe": ((9, 0), 114, _HOPPER),
        "H100, H200": ((9, 0), 132, _HOPPER),
        "B200": ((10, 0), 148, _HOPPER),
        "GeForce RTX 5090": ((12, 0), 170, _SMALL),
        "RTX PRO 6000": ((12, 0), 188, _SMALL),
    }
)
"""By name, the compute capability, multiprocessors and bytes of dynamic shared memory of a block of known GPUs: for
packs, without these GPUs.

The shared memory of a block and the cluster sizes are the compute capability's (CUDA C++ programming guide, "Technical
Specifications per Compute Capability"), the multiprocessors the board's (NVIDIA's data sheets and architecture white
papers). The H200's are from its driver.
"""


def device_named(name: str) -> DryRunDevice:
    """A dry-run device for one of GPUS."""
    capability, processors, shared_bytes = GPUS[name]
    return DryRunDevice(0, capability, processors, shared_bytes)
