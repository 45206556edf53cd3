"""A table in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table with this head; an empty cell becomes a dash."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell or '-' for cell in line)} |" for line in lines)
