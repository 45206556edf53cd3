"""Room on the stack that CPython keeps frames of Python functions on.

It consists of chunks of 16 KB. Until one is cached (3.13.13, 3.14.4, 3.15; python/cpython#142183), a chunk goes back to
the system with the last frame in it: calls that begin at the end of a chunk map and unmap memory each time, for some
7 us. Which calls those are depends on the depth of their caller: a forward pass may launch all its kernels there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")
_SLOTS = 16_384
"""Of a frame, 8 bytes each: its chunk is the next power of two, 256 KB, and half of that is left. Only pages that are
used cost anything.
"""


def with_room(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """The function, in a chunk of its own that has room for what it calls. That costs some 10 us a call."""

    def call(*args: object) -> _Result:
        return function(*args)

    call.__code__ = call.__code__.replace(co_stacksize=_SLOTS)
    return call
