"""A line on the terminal while a search runs, and only there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["progress", "quiet"]

_quiet: ContextVar[bool] = ContextVar("gradkern_search_quiet", default=False)


@contextmanager
def quiet() -> Generator[None]:
    """No lines within: something else is drawing on the terminal."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


@contextmanager
def progress(title: str) -> Generator[Callable[[str], None]]:
    """A function that shows how far a search is. It shows nothing where standard error is no terminal."""
    if _quiet.get() or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(f"searching {escape(title)}") as status:
        yield lambda text: status.update(f"searching {escape(title)}: {escape(text)}")
