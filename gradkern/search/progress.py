"""A line on the terminal while a search runs, and only there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """A function that shows how far a search is. It shows nothing where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(f"searching {escape(title)}") as status:
        yield lambda text: status.update(f"searching {escape(title)}: {escape(text)}")
