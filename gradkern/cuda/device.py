"""Checked driver calls, contexts, and properties of devices."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gradkern.cuda.margin import sm_margin
from gradkern.errors import ProviderError
from gradkern.system import locks

driver: Any = import_module("cuda.bindings.driver")
"""NVIDIA's bindings of the driver. They have no types."""

in_turn = locks.lock()
"""Held while several launches that share a stream's scratch memory are enqueued: two threads may share the stream."""

_UNDER_CAPTURE = ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")


class OutOfMemoryError(ProviderError):
    """The device does not have the requested memory."""


def check(answer: tuple[Any, ...], doing: str) -> Any:
    """The result of a driver call. Raises ProviderError with the driver's message."""
    status = answer[0]
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        words = text.decode() if text else "unknown error"
        if status.name in _UNDER_CAPTURE:
            words += "; the first call of a kind cannot be captured in a graph: call once before the capture to warm it"
        kind = OutOfMemoryError if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else ProviderError
        raise kind(f"CUDA: {doing} failed: {words} ({status.name})")
    return answer[1] if len(answer) == 2 else answer[1:]


@dataclass(frozen=True, slots=True)
class Device:
    """The properties that a kernel's config may depend on.

    processors: the multiprocessors that kernels may fill; margin: other multiprocessors, left free
    """

    index: int
    capability: tuple[int, int]
    processors: int
    shared_bytes: int  # of dynamic shared memory a block may have
    context: Any = field(default=None, compare=False)  # follows from the index
    margin: int = 0

    @property
    def max_cluster_size(self) -> int:
        """The most blocks of a thread block cluster, sizes that are not portable included; 1 without clusters."""
        if self.capability < (9, 0):
            return 1
        return 16 if self.capability[0] in (9, 10) else 8


_described: ContextVar[Device | None] = ContextVar("gradkern_described_device", default=None)


@contextmanager
def described(device: Device) -> Generator[None]:
    """Within the block, `get_device` returns this device for every index, in this thread."""
    token = _described.set(device)
    try:
        yield
    finally:
        _described.reset(token)


def get_device(index: int) -> Device:
    """The device with this index, with the current SM margin, and its primary context, shared with all frameworks.

    Plans for it keep that margin: they are cached, and their keys do not contain it.
    """
    given = _described.get()
    if given is not None:
        return given
    whole = _opened(index)
    margin = sm_margin(whole.processors)
    return _less(whole, margin) if margin else whole


@cache
def _less(whole: Device, margin: int) -> Device:
    return replace(whole, processors=whole.processors - margin, margin=margin)


@cache
def _opened(index: int) -> Device:
    check(driver.cuInit(0), "cuInit")
    handle = check(driver.cuDeviceGet(index), f"looking for device {index}")
    context = check(driver.cuDevicePrimaryCtxRetain(handle), f"opening device {index}")
    names = driver.CUdevice_attribute

    def attribute(name: str) -> int:
        device = getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(device, handle), f"reading {name}"))

    capability = (attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR"))
    shared = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    return Device(index, capability, attribute("MULTIPROCESSOR_COUNT"), shared, context)


@cache
def identity(index: int) -> tuple[str, str]:
    """The device's name and its driver: measurements are valid for these."""
    handle = check(driver.cuDeviceGet(get_device(index).index), f"looking for device {index}")
    name = check(driver.cuDeviceGetName(256, handle), "reading a device's name").split(b"\0")[0].decode()
    try:  # the driver itself reports only its CUDA version
        release = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        release = ""
    return name, f"CUDA {check(driver.cuDriverGetVersion(), 'reading the version')} {release}".strip()


def is_current(device: Device) -> bool:
    """Whether the device's primary context is current in this thread: then `activate` is not needed, and slower."""
    return int(driver.cuCtxGetCurrent()[1]) == int(device.context)


class activate:  # noqa: N801  used like a function
    """Make the device's primary context current for a block of code. A thread that had none keeps it, as after a call
    of CUDA's runtime: PyTorch's cuBLAS warns where there is none.
    """

    __slots__ = ("_context", "_pushed")

    def __init__(self, device: Device) -> None:
        self._context = device.context
        self._pushed = False

    def __enter__(self) -> None:
        _, current = driver.cuCtxGetCurrent()
        if int(current) != int(self._context):
            check(driver.cuCtxPushCurrent(self._context), "making a context current")
            self._pushed = int(current) != 0

    def __exit__(self, *_: Any) -> None:
        if self._pushed:
            driver.cuCtxPopCurrent()


@contextmanager
def relaxed_capture() -> Generator[None]:
    """Let this thread create memory, streams, events and library handles while a stream is captured.

    The capture mode may forbid that to its thread, or to all threads: an attempt would invalidate the capture. The
    created objects are not part of the graph. Nothing may be enqueued here on a captured stream.
    """
    exchange = driver.cuThreadExchangeStreamCaptureMode
    before = check(exchange(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED), "relaxing a capture's mode")
    try:
        yield
    finally:
        exchange(before)
