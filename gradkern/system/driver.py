"""The CUDA driver through ctypes: the GPUs of this machine, without any package."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_MEMORY_CLOCK, _BUS_WIDTH, _MAJOR, _MINOR = 36, 37, 75, 76  # of CUdevice_attribute


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. memory is in bytes; bandwidth, in bytes a second, is nominal: memory clock times bus width."""

    index: int
    name: str
    capability: tuple[int, int]
    memory: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Driver:
    """What the driver answers: the newest CUDA it runs, the GPUs it shows, and the reason where it shows none."""

    version: tuple[int, int]
    gpus: tuple[Gpu, ...]
    error: str | None = None


def ask(load: Callable[[str], Any] = ctypes.CDLL) -> Driver | None:
    """The driver of this machine; None without one."""
    try:
        library = load("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    major, minor = version.value // 1000, version.value % 1000 // 10
    status = library.cuInit(0)
    if status == _NO_DEVICE:
        return Driver((major, minor), ())
    try:
        _check(library, status)
        count = ctypes.c_int(0)
        _check(library, library.cuDeviceGetCount(ctypes.byref(count)))
        return Driver((major, minor), tuple(_gpu(library, index) for index in range(count.value)))
    except RuntimeError as error:
        return Driver((major, minor), (), str(error))


def _gpu(library: Any, index: int) -> Gpu:
    handle, name, memory = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.c_size_t(0)
    _check(library, library.cuDeviceGet(ctypes.byref(handle), index))
    _check(library, library.cuDeviceGetName(name, len(name), handle))
    _check(library, library.cuDeviceTotalMem_v2(ctypes.byref(memory), handle))

    def attribute(device: int) -> int:
        value = ctypes.c_int(0)
        _check(library, library.cuDeviceGetAttribute(ctypes.byref(value), device, handle))
        return value.value

    kilohertz, bits = attribute(_MEMORY_CLOCK), attribute(_BUS_WIDTH)
    bandwidth = 2 * kilohertz * 1e3 * bits / 8  # two transfers a clock
    return Gpu(index, name.value.decode(), (attribute(_MAJOR), attribute(_MINOR)), memory.value, bandwidth)


def _check(library: Any, status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{text.value.decode() if text.value else 'unknown error'} (CUresult {status})")
