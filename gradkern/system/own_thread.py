"""Work that leaves nothing of its caller behind.

Numba keeps exceptions in cycles, with the frames that they passed, and a frame has those that called it: all arrays of
a first call would live on until Python's garbage collector comes. PyTorch's CUDA graph trees then find tensors that
should be gone ("storage data ptrs are not allocated in pool"). The frames of a thread of its own have no such callers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_own_thread"]

Result = TypeVar("Result")


def in_own_thread(function: Callable[[], Result]) -> Result:
    """function(), waited for; what it raises is raised here."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="gradkern compiles")
    try:
        thread.start()
    except RuntimeError:  # no more threads, as while Python ends
        return function()
    thread.join()
    if errors:
        raise errors.pop()
    return results.pop()
