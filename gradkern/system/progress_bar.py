"""A bar on the terminal over items that take seconds each, with the time that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from gradkern.system.notice import hide, on_terminal, quiet

__all__ = ["bar"]

Item = TypeVar("Item")


def bar(title: str, items: Iterable[Item], name: Callable[[Item], str], total: int | None = None) -> Iterator[Item]:
    """The items, one after another, above a bar with the item's name, how many are done, and the time that is left.

    total: how many there are, if the items do not say. Nothing else is drawn meanwhile. It shows nothing where standard
    error is no terminal.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if not total or not on_terminal():
        yield from items
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
