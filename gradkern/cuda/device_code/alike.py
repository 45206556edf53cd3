"""Reuses device functions that kernels of different configs build with the same constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, cast

import numpy as np

_MOST = 512  # functions kept, each with Numba's data about it: those of twenty kernels: these compile a tenth faster


def once_for_alike(make: Callable[..., Any], most: int = _MOST) -> Callable[..., Any]:
    """`make` with a cache: functions with the same code, the same values of their free names and the same further
    arguments share one result. The `most` results used last are kept.
    """

    @lru_cache(most)
    def made(alike: _Alike, *more: Any) -> Any:
        return make(alike.function, *more)

    def found(function: Any, *more: Any) -> Any:
        if not isinstance(function, FunctionType):
            return make(function, *more)
        try:
            alike = _Alike(function)
        except TypeError:  # one of its names refers to a list, or another unhashable value
            return make(function, *more)
        return made(alike, *more)

    return found


class _Alike:
    """A function; equal to every function that is folded, typed and lowered the same."""

    __slots__ = ("_hash", "_key", "function")

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self._key = (function.__code__, _exact(function.__defaults__), *_outside(function))
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and self._key == other._key


def _outside(function: FunctionType) -> Iterator[Any]:
    """The values of a function's free names: of enclosing functions, of its module, and attributes of modules."""
    for cell in function.__closure__ or ():
        try:
            yield _exact(cell.cell_contents)
        except ValueError:  # not assigned yet
            raise TypeError from None
    names, known = function.__code__.co_names, function.__globals__
    for name in names:
        value = known.get(name)
        yield _exact(value)
        if isinstance(value, ModuleType) and value.__name__.startswith("gradkern."):
            for each in names:
                yield _exact(getattr(value, each, None))


def _exact(value: Any) -> Any:
    """A key that is equal for indistinguishable values only: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_exact, cast("tuple[Any, ...]", value)))
    kind = cast("type[Any]", type(value))
    return kind, repr(value) if issubclass(kind, (float, np.floating)) else value
