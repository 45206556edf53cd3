"""A line on the terminal while a search runs, and only there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from gradkern.system import notice

__all__ = ["progress"]


@contextmanager
def progress(title: str) -> Generator[Callable[[str], None]]:
    """A function that shows the progress of a search. It shows nothing if standard error is not a terminal."""
    if not notice.on_terminal():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    notice.hide()
    with Console(stderr=True).status(f"searching {escape(title)}") as status:
        yield lambda text: status.update(f"searching {escape(title)}: {escape(text)}")
