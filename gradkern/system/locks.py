"""Locks that a forked child can take.

A fork copies locks as they are, but not the threads that would let go of them: a child would wait for ever. So every
lock of gradkern is new in a child, and a fork waits a while for plans that are just being made, so that no import, no
compilation and no look-up is found half done. A child may then compute on the CPU, whatever its parent's threads did;
CUDA does not survive a fork: a process that is to use a GPU is started with "spawn".
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

__all__ = ["lock", "reentrant_lock", "renew_in_child", "wait_before_fork"]

_PATIENCE = 30.0
"""Seconds that a fork waits: a kernel for the CPU is compiled in a few, a search on a GPU takes minutes."""

_locks: WeakSet[Any] = WeakSet()
_waited_for: list[Any] = []
_held: list[Any] = []


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


def wait_before_fork(lock: Any) -> Any:
    """Let a fork wait until nobody holds this lock, if that does not take too long.

    For a few locks that live as long as the process; one under which others are taken comes after those.
    """
    _waited_for.append(lock)
    return lock


def _before() -> None:
    _held.extend(each for each in reversed(_waited_for) if each.acquire(timeout=_PATIENCE))


def _in_parent() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _held.clear()
    for each in list(_locks):
        each._at_fork_reinit()  # as threading and logging do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
