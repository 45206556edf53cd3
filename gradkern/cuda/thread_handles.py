"""Handles of NVIDIA's libraries: one for each thread and device, as only one thread at a time may use one."""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Generic, TypeVar

from gradkern.cuda.device import relaxed_capture

__all__ = ["ThreadHandles"]

T = TypeVar("T")


class ThreadHandles(Generic[T]):
    """Those of one library, made with `make`, in the context that is current then."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._thread = local()
        self._idle: dict[int, list[T]] = {}  # of threads that have ended; destroying one would wait for the device

    def of(self, index: int) -> T:
        """This thread's handle for the device with this index, whose context must be current. It may be made in a
        capture: a thread's first call can be one with a plan that another thread has made.
        """
        try:
            return self._thread.handles[index]
        except AttributeError:
            self._thread.handles = _Owned(self._idle)
        except KeyError:
            pass
        try:
            made = self._idle[index].pop()
        except (KeyError, IndexError):
            with relaxed_capture():
                made = self._make()
        self._thread.handles[index] = made
        return made


class _Owned(dict[int, T]):
    """A thread's handles, by device; they go to another thread when it ends."""

    def __init__(self, idle: dict[int, list[T]]) -> None:
        super().__init__()
        self._idle = idle

    def __del__(self) -> None:
        for index, each in self.items():
            self._idle.setdefault(index, []).append(each)
