"""How arrays and tables are shown: on a line of text, and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_MOST_ROWS = 40


def array_parts(array: Any) -> tuple[str, ...]:
    """The class, type, shape and device of an array, as far as it says them; nothing is read from its memory."""
    if array is None:
        return ("None",)
    try:
        parts = (getattr(array, "dtype", ""), tuple(getattr(array, "shape", ())), getattr(array, "device", ""))
    except Exception:  # of another library's own object
        parts = ()
    return (type(array).__name__, *(str(each).removeprefix("torch.") for each in parts))


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table of at most 40 rows that scrolls where it is wider than the page."""
    from html import escape  # here: the command line and most processes show no table

    every = [*rows]

    def cells(tag: str, texts: Iterable[object]) -> str:
        return "".join(f'<{tag} style="text-align: left">{escape(str(each))}</{tag}>' for each in texts)

    lines = [f"<tr>{cells('td', row)}</tr>" for row in every[:_MOST_ROWS]]
    more = f"<p>and {len(every) - _MOST_ROWS} more</p>" if len(every) > _MOST_ROWS else ""
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>" if heads else ""
    body = f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"
    return f'<div style="overflow-x: auto"><p>{escape(title)}</p>{body}{more}</div>'
