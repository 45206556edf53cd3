"""How long calls take on their device, and when they are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.system import locks


def synchronize() -> None:
    """Wait for what the GPU still does, if this process uses one."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Timer:
    """Adds up the time of calls: on a GPU between two events of the stream, on the CPU by the clock. Calls that are
    captured in a graph are not timed, since they do not run then.
    """

    def __init__(self) -> None:
        self._calls, self._seconds = 0, 0.0
        self._events: deque[tuple[Any, Any]] = deque()
        self._lock = locks.reentrant_lock()

    def total(self) -> tuple[int, float]:
        """Calls that were timed, and their seconds. Waits for those that still run."""
        with self._lock:
            self._read(wait=True)
            return self._calls, self._seconds

    def __call__(self, device: torch.device, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """What the function returns."""
        if device.type != "cuda":
            start = perf_counter()
            result = function(*args, **named)
            with self._lock:
                self._seconds += perf_counter() - start
                self._calls += 1
            return result
        if torch.cuda.is_current_stream_capturing():
            return function(*args, **named)
        stream = torch.cuda.current_stream(device)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(stream)
        result = function(*args, **named)
        end.record(stream)
        with self._lock:
            self._events.append((start, end))
            self._read(wait=False)
        return result

    def _read(self, wait: bool) -> None:
        """Take the times of calls that have ended; a step never waits for the others."""
        while self._events and (wait or self._events[0][1].query()):
            start, end = self._events.popleft()
            end.synchronize()
            self._seconds += start.elapsed_time(end) / 1e3
            self._calls += 1


def mean(timers: Iterable[Timer]) -> float | None:
    """Microseconds of one call; None where none was timed."""
    totals = [each.total() for each in timers]
    calls = sum(count for count, _ in totals)
    return sum(seconds for _, seconds in totals) / calls * 1e6 if calls else None
