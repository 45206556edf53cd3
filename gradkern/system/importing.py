"""Imports on first use that are not left half done: a fork waits for their end, and no exception comes in between."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from types import ModuleType

from gradkern.system import locks
from gradkern.system.own_thread import in_import, in_own_thread, working

_loaded: dict[str, ModuleType] = {}


def load(name: str) -> ModuleType:
    """The module of this name, imported by the first who asks. Raises ProviderError as locks.require_whole does."""
    module = _loaded.get(name)
    if module is not None and sys.modules.get(name) is module:
        return module
    return in_own_thread(partial(_imported, name))


def _imported(name: str) -> ModuleType:
    if name not in _loaded:
        locks.require_whole(working)
    module = import_module(name)
    if not in_import():  # where a finalizer asks, that runs in the middle of an import, this may be half of a module
        _loaded[name] = module
    return module
