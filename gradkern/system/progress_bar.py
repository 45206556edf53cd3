"""A bar on the terminal, or in a notebook, over items that take seconds each, with the time that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from time import monotonic
from typing import TypeVar

from gradkern.system.notebook import Output
from gradkern.system.notice import hide, in_notebook, on_terminal, quiet

__all__ = ["bar"]

Item = TypeVar("Item")


def bar(title: str, items: Iterable[Item], name: Callable[[Item], str], total: int | None = None) -> Iterator[Item]:
    """The items, one after another, above a bar with the item's name, how many are done, and the time that is left.

    total: how many there are, if the items do not say. Nothing else is drawn meanwhile. It shows nothing where standard
    error is no terminal, and there is no notebook.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if not total or not on_terminal():
        output = in_notebook() if total else None
        yield from items if output is None or total is None else _in_notebook(output, title, items, name, total)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    hide()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown, quiet():
        task = shown.add_task(escape(title), total=total)
        for item in items:
            shown.update(task, description=f"{escape(title)} {escape(name(item))}")
            yield item
            shown.advance(task)


def _in_notebook(
    output: Output, title: str, items: Iterable[Item], name: Callable[[Item], str], total: int
) -> Iterator[Item]:
    from html import escape

    hide()
    start = monotonic()
    try:
        with quiet():
            for done, item in enumerate(items):
                left = f", {(monotonic() - start) * (total - done) / done:.0f} s left" if done else ""
                text = f"{title} {name(item)}: {done} of {total}{left}"
                output.write(text, f'<progress value="{done}" max="{total}"></progress> {escape(text)}')
                yield item
    finally:
        output.write("")
