"""A second stream beside a caller's, for work that does not depend on what the first does meanwhile."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gradkern.cuda.device import Device, activate, check, relaxed_capture

driver: Any = import_module("cuda.bindings.driver")  # it has no types

__all__ = ["Fork", "fork"]


class Fork:
    """The stream beside one stream of one device. What it does is captured with that stream, as events tie the two."""

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
        """From here on the second stream runs, after all that is in the first now."""
        status = driver.cuEventRecord(self._before, self._beside)
        status = status if status[0] else driver.cuStreamWaitEvent(self._handle, self._before, 0)
        if status[0]:
            check(status, "splitting a stream")

    def join(self) -> None:
        """From here on the first stream waits for all that is in the second now."""
        status = driver.cuEventRecord(self._after, self._handle)
        status = status if status[0] else driver.cuStreamWaitEvent(self._beside, self._after, 0)
        if status[0]:
            check(status, "joining streams")


_forks: dict[tuple[int, int], Fork] = {}


def fork(device: Device, stream: int) -> Fork:
    """The one beside this stream. Threads that share the stream take turns: `in_turn` is held from split to join."""
    found = _forks.get((device.index, stream))
    return found or _forks.setdefault((device.index, stream), Fork(device, stream))
