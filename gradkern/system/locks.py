"""Locks that a forked child can take.

A fork copies locks as they are, but not the threads that would let go of them: a child would wait for ever. So every
lock of gradkern is new in a child, and a fork waits a while for plans that are just being made, so that no import, no
compilation and no look-up is found half done. A child may then compute on the CPU, whatever its parent's threads did;
where the wait was too short, it may neither import nor compile, and says so. CUDA does not survive a fork: a process
that is to use a GPU is started with "spawn".
"""

from __future__ import annotations

import concurrent.futures.thread
import logging
import os
import threading
import time
from typing import Any
from weakref import WeakSet

from gradkern.errors import ProviderError

_PATIENCE = 30.0
"""Seconds that a fork waits: a kernel for the CPU is compiled in a few, a search on a GPU takes minutes."""

_locks: WeakSet[Any] = WeakSet()
_waited_for: list[Any] = []
_cut_off: list[Any] = []  # what was being made when this process was forked: held for longer than the fork waited


def lock() -> threading.Lock:
    """A lock like threading.Lock()."""
    return renew_in_child(threading.Lock())


def reentrant_lock() -> Any:
    """A lock like threading.RLock()."""
    return renew_in_child(threading.RLock())


def renew_in_child(lock: Any) -> Any:
    """Let nobody hold this lock in a forked child."""
    _locks.add(lock)
    return lock


def wait_before_fork(lock: Any, *, innermost: bool = False) -> Any:
    """Let a fork wait until nobody else holds this reentrant lock, if that does not take too long.

    For a few locks that live as long as the process. Register a lock after those that are taken while it is held.
    innermost: it is taken while earlier ones are held, and none of them while it is held.
    """
    _waited_for.insert(0 if innermost else len(_waited_for), lock)
    return lock


def require_whole(made_under: Any = None) -> None:
    """Raise ProviderError in a child whose fork could not get this lock, or any, in time: a module, the registry or the
    state of Numba and LLVM is as the fork found it, with their own locks held, and the child would wait for ever.
    """
    if _cut_off if made_under is None else made_under in _cut_off:
        raise ProviderError(
            f"this process was forked while its parent had been importing or compiling for more than {_PATIENCE:.0f} "
            's, so it can do neither; fork after the first call, or start processes with "spawn"'
        )


class _Fork:
    """A fork in progress: the locks that it holds, and those that it could not get in time."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.missed: list[Any] = []

    def wait(self, seconds: float) -> None:
        """Take every lock, within so many seconds."""
        end = time.monotonic() + seconds
        known = 0
        while known < len(_waited_for):  # what was waited for may have brought a lock, whose turn was before its own
            self.let_go()
            known = len(_waited_for)
            for each in reversed(_waited_for[:known]):
                taken = each.acquire(timeout=max(0.0, end - time.monotonic()))
                (self.held if taken else self.missed).append(each)

    def let_go(self) -> None:
        self.missed.clear()
        while self.held:
            self.held.pop().release()


_one_at_a_time = renew_in_child(threading.RLock())  # reentrant, for a signal handler that forks in the middle of a fork
_forks: list[_Fork] = []  # by the thread that holds this lock: one, and those of such handlers


def _before() -> None:
    begun = time.monotonic()
    _one_at_a_time.acquire()
    _forks.append(_Fork())
    _forks[-1].wait(_PATIENCE - (time.monotonic() - begun))


def _in_parent() -> None:
    _forks.pop().let_go()
    _one_at_a_time.release()


def _in_child() -> None:
    _cut_off.extend(_forks[-1].missed)
    _forks.clear()
    for each in list(_locks):
        each._at_fork_reinit()  # as threading and logging do


# Handlers run before a fork in reverse order of registration. These two take locks of their own then, and an import in
# another thread may need those: had they registered later, ours would wait for that import until it times out.
_REGISTERED_BEFORE = (logging, concurrent.futures.thread)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
