"""Ctrl-C where Python's own way of taking it would do harm.

A KeyboardInterrupt in the middle of an import leaves half a module behind, and every later call fails for another
reason; in the middle of a compilation it can land in a function that LLVM has called, where it is lost.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["deferred"]


@contextmanager
def deferred() -> Generator[None]:
    """Hold back an interrupt until the end of the block; a second one is not held back.

    Only the main thread gets interrupts; in others, and where the program has a handler that Python does not know,
    nothing is changed.
    """
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if before in (None, signal.SIG_IGN):
        yield
        return
    interrupted = False

    def hold(number: int, frame: Any) -> None:
        nonlocal interrupted
        if interrupted and callable(before):
            before(number, frame)
        interrupted = True

    try:
        signal.signal(signal.SIGINT, hold)
    except ValueError:  # not the main interpreter
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupted:
            signal.raise_signal(signal.SIGINT)
