"""A second stream beside a caller's, for independent work."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gradkern.cuda.device import Device, activate, check, relaxed_capture

driver: Any = import_module("cuda.bindings.driver")  # it has no types

__all__ = ["Fork", "fork"]


class Fork:
    """The stream beside one stream of one device. Its work is captured with that stream, because events connect the
    two.
    """

    def __init__(self, device: Device, beside: int) -> None:
        streams, events = driver.CUstream_flags, driver.CUevent_flags
        with activate(device), relaxed_capture():
            handle = check(driver.cuStreamCreate(streams.CU_STREAM_NON_BLOCKING), "making a second stream")
            self._before, self._after = (
                check(driver.cuEventCreate(events.CU_EVENT_DISABLE_TIMING), "making an event") for _ in range(2)
            )
        self.stream = int(handle)
        self._handle: Any = handle
        self._beside = driver.CUstream(beside)

    def split(self) -> None:
        """The second stream waits for the current work of the first."""
        status = driver.cuEventRecord(self._before, self._beside)
        status = status if status[0] else driver.cuStreamWaitEvent(self._handle, self._before, 0)
        if status[0]:
            check(status, "splitting a stream")

    def join(self) -> None:
        """The first stream waits for the current work of the second."""
        status = driver.cuEventRecord(self._after, self._handle)
        status = status if status[0] else driver.cuStreamWaitEvent(self._beside, self._after, 0)
        if status[0]:
            check(status, "joining streams")


_forks: dict[tuple[int, int], Fork] = {}


def fork(device: Device, stream: int) -> Fork:
    """The side stream of this stream. Threads that share the stream hold `in_turn` from split to join."""
    found = _forks.get((device.index, stream))
    return found or _forks.setdefault((device.index, stream), Fork(device, stream))
