"""Properties of known GPUs that kernels' configs depend on, for building packs without these GPUs.

The shared memory of a block and the cluster sizes are the compute capability's (CUDA C++ programming guide, "Technical
Specifications per Compute Capability"), the multiprocessors the board's (NVIDIA's data sheets and architecture white
papers). The H200's are from its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gradkern.cuda.dry_run import DryRunDevice

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
"""Compute capability, multiprocessors, and bytes of dynamic shared memory of a block, by name."""


def device_named(name: str) -> DryRunDevice:
    """A dry-run device for one of GPUS."""
    capability, processors, shared_bytes = GPUS[name]
    return DryRunDevice(0, capability, processors, shared_bytes)
