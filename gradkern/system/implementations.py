"""Implementations of operators from outside of the package, beside the modules that registry.yaml names.

A module of another compiler or library is compared with the operator's own: where its results agree and it is faster,
calls run it. It is a gradkern.call.ProviderModule, or has `configs(call)`, best first, and `build(call, config)`, the
plan in a config; `supports(call)` may say why it does not take a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_added: dict[tuple[str, str], dict[str, str]] = {}


def add(operator: str, provider: str, name: str, module: str) -> None:
    """Add a module, by its import path, for calls that are planned from now on. Results of searches have its name."""
    _added.setdefault((operator, provider), {})[name] = module


def remove(operator: str, provider: str, name: str) -> None:
    """Undo `add`."""
    del _added[operator, provider][name]


def added(operator: str, provider: str) -> Mapping[str, str]:
    """The import paths of added modules, by name."""
    return MappingProxyType(_added.get((operator, provider), {}))
