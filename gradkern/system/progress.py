"""Progress on the terminal, or in a notebook: a bar over items that take seconds each, or a line that changes.

It shows nothing where standard error is no terminal, and there is no notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

from gradkern.system.notice import hide, in_notebook, on_terminal, quiet

Item = TypeVar("Item")


@contextmanager
def progress(title: str) -> Generator[Callable[[str], None]]:
    """A function that shows a text behind the title."""
    if on_terminal():
        from rich.console import Console
        from rich.markup import escape

        hide()
        with Console(stderr=True).status(escape(title)) as status:
            yield lambda text: status.update(f"{escape(title)}: {escape(text)}")
        return
    output = in_notebook()
    if output is None:
        yield lambda text: None
        return
    hide()
    output.write(title)
    try:
        yield lambda text: output.write(f"{title}: {text}")
    finally:
        output.write("")


def bar(title: str, items: Iterable[Item], name: Callable[[Item], str], total: int | None = None) -> Iterator[Item]:
    """The items, one after another, above a bar with the item's name, how many are done, and the time that is left.

    total: how many there are, if the items do not say. Nothing else is drawn meanwhile.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with drawn(title, total) as draw:
        for done, item in enumerate(items):
            draw(name(item), done)
            yield item


@contextmanager
def drawn(title: str, total: int | None) -> Generator[Callable[[str, int], None]]:
    """What draws a bar over so many items, given an item's name and how many are done."""
    terminal = on_terminal()
    output = None if terminal else in_notebook()
    if not total or not (terminal or output):
        yield lambda name, done: None
        return
    hide()
    if output is not None:
        from html import escape

        start = monotonic()

        def draw(name: str, done: int) -> None:
            left = f", {(monotonic() - start) * (total - done) / done:.0f} s left" if done else ""
            text = f"{title} {name}: {done} of {total}{left}"
            output.write(text, f'<progress value="{done}" max="{total}"></progress> {escape(text)}')

        try:
            with quiet():
                yield draw
        finally:
            output.write("")
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown, quiet():
        task = shown.add_task(escape(title), total=total)
        yield lambda name, done: shown.update(task, description=f"{escape(title)} {escape(name)}", completed=done)
