"""What tools/override_bench.py measured, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_table import table

__all__ = ["shown"]


def shown(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds of a call in each way, and what the ways add to PyTorch's own."""
    ways = [each for each in _WAYS if each in rows[0]]
    head = ["operator", "PyTorch us", *(f"{way} us" for way in ways), *(f"{way} adds" for way in (*ways, "bare"))]
    head += [_SHARE] if _SHARE in rows[0] else []
    lines = []
    for row in rows:
        own = {way: row.get("torch beside native", row["torch"]) if "native" in way else row["torch"] for way in ways}
        added = [row[way] - own[way] if way in row else None for way in ways]
        times = (row["torch"], *map(row.get, ways), *added, row["bare"] - row["torch"])
        share = [f"{row[_SHARE]:.0%}"] if _SHARE in row else []
        lines.append([row["operator"], *("-" if each is None else f"{each:.1f}" for each in times), *share])
    return table(head, lines)


_SHARE = "by machine code"
_WAYS = ("taken", "declined", "native", "native declined")
"""But for PyTorch's own. Results from before there was machine code lack the last two; a row may lack any."""
