"""Imports on first use that are not left half done: a fork and an interrupt wait for their end."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from gradkern.system import locks
from gradkern.system.interrupts import deferred

__all__ = ["load"]

_importing = locks.wait_before_fork(locks.reentrant_lock())
_loaded: set[str] = set()


def load(name: str) -> ModuleType:
    """The module of this name, imported by the first who asks. Raises ProviderError as locks.require_whole does."""
    with _importing, deferred():
        if name not in _loaded:
            locks.require_whole(_importing)
        module = import_module(name)
        _loaded.add(name)
        return module
