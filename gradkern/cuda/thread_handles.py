"""Handles of NVIDIA's libraries: one for each thread and device, because a handle is not thread-safe."""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Generic, TypeVar

from gradkern.cuda.device import relaxed_capture

T = TypeVar("T")


class ThreadHandles(Generic[T]):
    """Handles of one library, created with `make` in the current context."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._thread = local()
        self._idle: dict[int, list[T]] = {}  # of ended threads; destroying one would synchronise the device

    def of(self, index: int) -> T:
        """This thread's handle for the device with this index, whose context must be current. It may be created during
        a capture: a thread's first call may use a plan that another thread made.
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
    """A thread's handles, by device. They are reused by another thread when it ends."""

    def __init__(self, idle: dict[int, list[T]]) -> None:
        super().__init__()
        self._idle = idle

    def __del__(self) -> None:
        for index, each in self.items():
            self._idle.setdefault(index, []).append(each)
