"""From a plan to results under the CUDA simulator: launches of kernels as Python, with the arguments plans make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

from gradkern.call import Tensor
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.cuda.launch import KernelConfig
from gradkern.kernels.channels import streaming_plan
from helpers import simulated
from helpers.guarded import Guarded

__all__ = ["addresses", "arrays", "device_in_python", "tensors"]


_SCRATCH: list[Guarded] = []
"""The memory that a plan has asked for; after its launch nothing around it may be written."""


class Kernel:
    """Stands for a loaded kernel: its Python function."""

    def __init__(self, function: Callable[..., None], shared_bytes: int) -> None:
        self.function, self.shared_bytes = function, shared_bytes

    def resident_blocks(self, _threads: int) -> int:
        return 100


def kernel_of_config(_device: Device, builder: str, config: KernelConfig, *more: Any, arguments: int) -> Kernel:
    """Stands for launch.kernel_of_config."""
    return Kernel(resolve_name(builder)(config, *more), config.shared_bytes)


class Launch:
    """Stands for launch.Launch, with its arguments."""

    def __init__(
        self,
        kernel: Kernel,
        grid: int,
        threads: int,
        arguments: Sequence[int],
        changing: Sequence[int],
        cooperative: bool,
    ) -> None:
        self.kernel, self.grid, self.threads, self.cooperative = kernel, grid, threads, cooperative
        self.arguments, self.changing = arguments, changing

    def __call__(self, values: Sequence[int], _stream: int) -> None:
        arguments = list(self.arguments)
        for index, value in zip(self.changing, values, strict=True):
            arguments[index] = value
        given = tuple(np.int64(each) for each in arguments)
        simulated.launch(self.kernel.function, self.grid, self.threads, 1, self.kernel.shared_bytes, given)
        for scratch in _SCRATCH:
            scratch.check()
        _SCRATCH.clear()


def device_in_python(monkeypatch: pytest.MonkeyPatch, threads: int = 256) -> Device:
    """A device of one multiprocessor, which runs kernels as Python, in blocks of so many threads."""
    config_of = streaming_plan._config
    monkeypatch.setattr(streaming_plan, "_config", lambda *given: replace(config_of(*given), threads=threads))
    device, counter = Device(0, (9, 0), 1, 232448), np.zeros(64, np.uint32)
    counter[0] = 1 << 31  # as an odd number of other launches' barriers leaves it
    monkeypatch.setattr(streaming_plan, "kernel_of_config", kernel_of_config)
    monkeypatch.setattr(streaming_plan, "Launch", Launch)
    monkeypatch.setattr(streaming_plan, "device_of", lambda _call: device)

    def scratch(_device: Device, _stream: int, size: int) -> tuple[int, int]:
        _SCRATCH.append(Guarded((size,), np.uint8))
        return counter.ctypes.data, _SCRATCH[-1].address

    monkeypatch.setattr(launches_plan, "scratch", scratch)
    return device


def laid(name: str, shape: tuple[int, ...], dtype: Any, last: bool) -> tuple[Guarded, np.ndarray, Tensor]:
    """Guarded memory, its array in the shape of the contract, and what a plan knows of it."""
    data = len(shape) > 1
    held = Guarded((int(np.prod(shape)),), dtype)
    stored = held.array.reshape((shape[0], *shape[2:], shape[1]) if data and last else shape)
    array = np.moveaxis(stored, -1, 1) if data and last else stored
    return held, array, Tensor(np.dtype(dtype), shape, array.strides, 16)


Arrays = dict[str, tuple[Guarded, np.ndarray, Tensor]]


def arrays(
    given: dict[str, np.ndarray], outputs: dict[str, tuple[tuple[int, ...], Any]], last: bool
) -> tuple[Arrays, Arrays]:
    """Inputs, filled, and outputs of (shape, type)."""
    read = {name: laid(name, array.shape, array.dtype, last) for name, array in given.items()}
    for name, array in given.items():
        read[name][1][...] = array
    return read, {name: laid(name, *each, last) for name, each in outputs.items()}


def addresses(of: Arrays) -> tuple[int, ...]:
    return tuple(held.address for held, _, _ in of.values())


def tensors(of: Arrays) -> dict[str, Any]:
    return {name: tensor for name, (_, _, tensor) in of.items()}
