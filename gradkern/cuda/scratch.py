"""Scratch memory of a launch: a counter for barriers over a grid, and a buffer. No warm call allocates any.

Launches that run in sequence share it. Launches that may run concurrently must not: partial sums would mix, and the
barrier would deadlock. So every stream has its own scratch memory. Graphs are replayed at any time and on any stream,
so every capture has its own, too: it belongs to the captured graph, and is reused for another capture once that graph
and all its instantiations are destroyed. Two instantiations of one captured graph, or two copies of it in a larger
graph, still share memory and must run in sequence.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, cast

from gradkern.cuda.device import Device, activate, check, driver, relaxed_capture
from gradkern.cuda.recording import Recording
from gradkern.system import locks

LEGACY, PER_THREAD = 1, 2  # special handles: 0 and 1 are the legacy default stream, never captured
_COUNTER_BYTES = 256
_LEAST_BYTES = 1 << 20

_lock = locks.reentrant_lock()


def scratch(device: Device, stream: int, size: int) -> tuple[int, int]:
    """(address of the counter, address of `size` bytes) for a launch on this stream. New memory is cleared."""
    if stream > LEGACY:
        if isinstance(stream, Recording):
            return cast(Any, stream.with_scratch(size))
        status, capturing = driver.cuStreamIsCapturing(stream)
        if status:  # for instance, no context is current in this thread
            with activate(device):
                capturing = check(driver.cuStreamIsCapturing(stream), "asking for a stream's capture")
        if capturing:
            return _of_capture(device, stream, size)
        if stream == PER_THREAD:
            stream = _of_this_thread(device)
    held = _streams.get((device.index, stream))
    if held is None or held.size < size:
        held = _grown(device, stream, size)
    return held.counter, held.buffer


@dataclass(slots=True, eq=False)
class _Scratch:
    counter: int
    buffer: int
    size: int


_streams: dict[tuple[int, int], _Scratch] = {}


def _grown(device: Device, stream: int, size: int) -> _Scratch:
    """Allocate a larger buffer for a stream. Earlier buffers are not freed, as a launch may be using them; the total is
    at most twice the largest."""
    with _lock:
        held = _streams.get((device.index, stream))
        if held is None or held.size < size:
            larger = max(size, 2 * held.size if held else _LEAST_BYTES)
            held = _streams[device.index, stream] = _Scratch(*_allocated(device, larger), larger)
    return held


def _of_this_thread(device: Device) -> int:
    """A key for the default stream of the calling thread: its handle is the same in every thread."""
    with activate(device):
        return -int(check(driver.cuStreamGetId(PER_THREAD), "asking for a stream's number"))


def _allocated(device: Device, size: int) -> tuple[int, int]:
    """A counter and a buffer, both zero: padding is read, and ignored.

    The memory is not part of a graph: it can be allocated, and cleared on a separate stream, while streams are
    captured.
    """
    size += _COUNTER_BYTES
    with activate(device), relaxed_capture():
        address = int(check(driver.cuMemAlloc(size), f"allocating {size} bytes of scratch memory"))
        apart = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "creating a stream")
        check(driver.cuMemsetD8Async(address, 0, size, apart), "clearing scratch memory")
        check(driver.cuStreamSynchronize(apart), "clearing scratch memory")
        check(driver.cuStreamDestroy(apart), "destroying a stream")
    return address, address + _COUNTER_BYTES


# --- captures --------------------------------------------------------------------------------------------------------


class _Flag:
    """A flag that CUDA sets when it destroys a graph, and reading resets.

    It is a semaphore of the C library: CUDA calls sem_post from its own thread, perhaps after Python has ended.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        library.calloc.restype = ctypes.c_void_p
        self.address: int = library.calloc(1, 64)  # never freed: the last graph may outlive Python
        self._try = library.sem_trywait
        library.sem_init(ctypes.c_void_p(self.address), 0, 0)
        self.raising = ctypes.cast(library.sem_post, ctypes.c_void_p).value

    def lowered(self) -> bool:
        """Whether it was set."""
        return self._try(ctypes.c_void_p(self.address)) == 0


@dataclass(slots=True, eq=False)
class _Captured(_Scratch):
    device: int
    user: tuple[int, int]  # the stream and the number of the last capture that used it
    destroyed: _Flag = field(default_factory=_Flag)


_graphs: list[_Captured] = []


def _of_capture(device: Device, stream: int, size: int) -> tuple[int, int]:
    """The scratch memory of the stream's capture."""
    with activate(device):
        status, number, graph = check(driver.cuStreamGetCaptureInfo(stream), "asking for a stream's capture")[:3]
        if status != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            check((driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,), "a launch")
        user = stream, int(number)
        with _lock:
            fitting = [each for each in _graphs if each.device == device.index and each.size >= size]
            held = next((each for each in fitting if each.user == user), None)
            if held is None:
                held = next((each for each in fitting if each.destroyed.lowered()), None)
                if held is None:
                    larger = max(size, _LEAST_BYTES)
                    held = _Captured(*_allocated(device, larger), larger, device.index, user)
                    _graphs.append(held)
                held.user = user
                _tie(held.destroyed, graph)
    return held.counter, held.buffer


def _tie(flag: _Flag, graph: Any) -> None:
    """Set the flag when the graph and all its instantiations are destroyed."""
    apart = driver.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
    made = driver.cuUserObjectCreate(flag.address, driver.CUhostFn(flag.raising), 1, apart)
    owner = check(made, "telling of a graph's end")
    given = driver.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
    check(driver.cuGraphRetainUserObject(graph, owner, 1, given), "telling of a graph's end")
