"""Classes that are made of others at run time. Their instances are copied and pickled by those others."""

from __future__ import annotations

from functools import cache
from typing import Any


class Derived:
    """The first base of such a class."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        _, (_, *args), *state = super().__reduce_ex__(max(protocol, 2))  # pyright: ignore[reportGeneralTypeIssues]
        return _new, (type(self).__name__, type(self).__bases__, *args), *state


@cache
def derived(name: str, *bases: type) -> type[Any]:
    """The class of this name and these bases. The first base is a Derived."""
    return type(name, bases, {"__module__": __name__})


def _new(name: str, bases: tuple[type, ...], *args: Any) -> Any:
    kind = derived(name, *bases)
    return kind.__new__(kind, *args)
