"""A plan's launches without launching them: for a caller that repeats them from machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

COUNTER, BUFFER = "counter", "buffer"


@dataclass(frozen=True, slots=True)
class Place:
    """An address that is not known yet: of an array of the call, or of scratch memory; and bytes behind it."""

    of: Any
    offset: int = 0

    def __add__(self, offset: int) -> Place:
        return Place(self.of, self.offset + offset)


class Recording:
    """In place of a stream: a plan that is called with it, and with Places, launches nothing.

    launches   of gradkern's own kernels: the Launch, and the values of its changing arguments; or cuDNN's Plan, and the
               addresses of its tensors and of its workspace
    cudnn      those of the latter
    guard      returns what these are executed within, from now on, by whoever does it
    scratch    bytes of scratch memory that they need; None where they need neither that nor a counter
    """

    def __init__(self, guard: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.guard = guard
        self.launches: list[tuple[Any, tuple[Any, ...]]] = []
        self.cudnn: list[Any] = []
        self.scratch: int | None = None

    def __gt__(self, other: int) -> bool:
        return True  # no default stream

    def add(self, launch: Any, values: Sequence[Any]) -> None:
        self.launches.append((launch, tuple(values)))

    def with_scratch(self, size: int) -> tuple[Place, Place]:
        self.scratch = max(self.scratch or 0, size)
        return Place(COUNTER), Place(BUFFER)
