"""What the rows that tools/bench.py writes say, in words; for its plot and for the results pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["Row", "most_measured_type", "size_of", "type_of"]

Row = dict[str, Any]


def type_of(row: Row) -> str:
    """The type of the data."""
    return next(iter(row["types"].values()))


def most_measured_type(rows: Sequence[Row]) -> str:
    """The type of the data in most of the rows; of several, the first."""
    return Counter(map(type_of, rows)).most_common(1)[0][0]


def size_of(row: Row) -> str:
    """Rows×columns, or the sizes of the data; with the order in memory where it is not the usual one. Where an
    operator has other axes, each with its name.
    """
    axes = row["axes"]
    short = (("rows", "columns"), ("sizes",), ("N", "C", "spatial"))
    names = next((each for each in short if set(each) <= set(axes)), None)
    if names is None:
        return str(row["size"]).replace("x", "×")
    sizes: list[int] = []
    for name in names:
        sizes += axes[name] if isinstance(axes[name], list) else [axes[name]]
    order = row.get("order") or ("channels_last" if "channels_last=1" in str(row["size"]).split() else None)
    return "×".join(map(str, sizes)) + (f", {order.replace('_', ' ')}" if order else "")
