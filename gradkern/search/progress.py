"""A line on the terminal, or in a notebook, while a search runs, and only there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from gradkern.system import notice

__all__ = ["progress"]


@contextmanager
def progress(title: str) -> Generator[Callable[[str], None]]:
    """A function that shows the progress of a search. It shows nothing where there is neither."""
    if not notice.on_terminal():
        output = notice.in_notebook()
        if output is None:
            yield lambda text: None
            return
        notice.hide()
        output.write(f"searching {title}")
        try:
            yield lambda text: output.write(f"searching {title}: {text}")
        finally:
            output.write("")
        return
    from rich.console import Console
    from rich.markup import escape

    notice.hide()
    with Console(stderr=True).status(f"searching {escape(title)}") as status:
        yield lambda text: status.update(f"searching {escape(title)}: {escape(text)}")
