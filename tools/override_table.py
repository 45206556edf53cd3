"""What tools/override_bench.py measured, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_table import table

__all__ = ["shown"]


def shown(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds of a call in each way, and what the ways add to PyTorch's own."""
    head = ["operator", "PyTorch us", "taken us", "declined us", "taken adds", "declined adds", "bare adds"]
    lines = []
    for row in rows:
        own, *others = (row[way] for way in ("torch", "taken", "declined", "bare"))
        times = (own, *others[:2], *(other - own for other in others))
        lines.append([row["operator"], *(f"{each:.1f}" for each in times)])
    return table(head, lines)
