"""Tables that forget their oldest entries."""

from __future__ import annotations

from typing import Any


def make_room(table: dict[Any, Any], most: int) -> None:
    """Let a table have fewer entries than `most`: the oldest go. Other threads may use it meanwhile."""
    if len(table) >= most:
        keys = list(table)  # at once, where an iterator would fail if another thread changed the table
        for oldest in keys[: len(keys) - most + 1]:
            table.pop(oldest, None)
