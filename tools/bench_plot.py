"""What the benchmark measured, drawn: against the limit of a GPU's memory, or against the peers."""

from __future__ import annotations

import io
import math
import sys
from typing import Any

from matplotlib.figure import Figure

Row = dict[str, Any]


def drawn(rows: list[Row], format_: str) -> bytes:
    """A picture of the rows, in a format matplotlib knows."""
    figure = _rates(rows) if all("limit" in row and "columns" in row["axes"] for row in rows) else _ratios(rows)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format_, dpi=130)
    return buffer.getvalue()


def _rates(rows: list[Row]) -> Figure:
    """GB/s over columns, at the largest size measured of each; gradkern, peers and the limit; a panel per operator."""
    operators = list(dict.fromkeys(row["operator"] for row in rows))
    figure = Figure(figsize=(4.2 * len(operators), 4), layout="constrained")
    panels = figure.subplots(1, len(operators), sharey=True, squeeze=False)[0]
    for panel, operator in zip(panels, operators, strict=True):
        by_size = sorted((row for row in rows if row["operator"] == operator), key=lambda row: row["bytes"])
        largest = {_columns(row): row for row in by_size}  # of each number of columns
        here = [largest[columns] for columns in sorted(largest)]
        places = [_columns(row) for row in here]
        panel.plot(places, [row["limit"]["add"] for row in here], "k--", label="limit: torch.add, same bytes")
        panel.plot(places, [row["gigabytes_per_second"] for row in here], "o-", linewidth=2, label="gradkern")
        for peer in sorted({peer for row in here for peer in row["peers"]}):
            rates = [row["bytes"] / row["peers"].get(peer, math.nan) / 1e3 for row in here]
            panel.plot(places, rates, ".-", alpha=0.8, label=peer)
        panel.set_xscale("log", base=2)
        panel.set_ylim(bottom=0)
        panel.set_title(operator, fontsize=9)
        panel.set_xlabel("columns")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("GB/s of bytes that must move")
    figure.legend(
        *max((panel.get_legend_handles_labels() for panel in panels), key=lambda each: len(each[1])),
        loc="outside lower center",
        ncols=6,
        fontsize=8,
    )
    return figure


def _columns(row: Row) -> int:
    size = row["axes"]["columns"]
    return math.prod(size) if isinstance(size, list | tuple) else size


def _ratios(rows: list[Row]) -> Figure:
    """Bars: how much longer each peer takes than gradkern on the same work."""
    peers = sorted({peer for row in rows for peer in row.get("peers", ())})
    shown = [row for row in rows if row.get("peers")]
    if not shown:
        sys.exit("--plot draws gradkern against peers; name some with --peers")
    figure = Figure(figsize=(9, 0.9 + 0.32 * len(shown) * len(peers)), layout="constrained")
    axes = figure.subplots()
    labels = [f"{row['operator']}  {row['size']}  {next(iter(row['types'].values()))}" for row in shown]
    height = 0.8 / len(peers)
    for place, peer in enumerate(peers):
        ratios = [row["peers"].get(peer, math.nan) / row["microseconds"] for row in shown]
        bars = axes.barh([y + place * height for y in range(len(shown))], ratios, height, label=peer)
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("time of the peer / time of gradkern (more than 1: gradkern is faster)")
    axes.legend()
    return figure
