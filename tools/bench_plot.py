"""What the benchmark measured, drawn: against the limit of a GPU's memory, or against the peers."""

from __future__ import annotations

import io
import math
import sys
from typing import Any

from bench_rows import Row, most_measured_type, size_of, type_of
from matplotlib.figure import Figure


def drawn(rows: list[Row], format_: str) -> bytes:
    """A picture of the rows, in a format matplotlib knows."""
    figure = _rates(rows) if all("limit" in row for row in rows) else _ratios(rows)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format_, dpi=130)
    return buffer.getvalue()


def _rates(rows: list[Row]) -> Figure:
    """GB/s of gradkern, the peers and the limit; a panel per operator, of its most measured type and outputs."""
    operators = list(dict.fromkeys(row["operator"] for row in rows))
    across = min(3, len(operators))
    down = -(-len(operators) // across)
    figure = Figure(figsize=(4.2 * across, 3.7 * down + 0.4), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False)
    for panel, operator in zip(panels.flat, operators, strict=False):
        draw, here = _by_columns, _most_measured([row for row in rows if row["operator"] == operator])
        if "columns" not in here[0]["axes"]:
            draw = _by_size
        draw(panel, here)
        panel.set_ylim(bottom=0)
        panel.set_title(f"{operator}\n{type_of(here[0])}, {', '.join(here[0]['outputs'])}", fontsize=8)
        panel.grid(alpha=0.3)
    for panel in panels.flat[len(operators) :]:
        panel.set_visible(False)
    for panel in panels[:, 0]:
        panel.set_ylabel("GB/s of bytes that must move")
    labelled = {}
    for panel in panels.flat:
        labelled |= {label: line for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=6, fontsize=8)
    return figure


_COLORS = {"gradkern": "C0", "torch": "C1", "compile": "C2", "liger": "C3", "cudnn": "C4"}
_LIMIT = "limit: torch.add, same bytes"


def _most_measured(rows: list[Row]) -> list[Row]:
    """The rows of the type of which there are most, and of those outputs of it."""
    dtype = most_measured_type(rows)
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if type_of(row) == dtype:
            kinds.setdefault(tuple(row["outputs"]), []).append(row)
    return max(kinds.values(), key=len)


def _by_columns(panel: Any, rows: list[Row]) -> None:
    """Lines over the number of columns, at the largest size measured of each."""
    largest = {_columns(row): row for row in sorted(rows, key=lambda row: row["bytes"])}
    here = [largest[columns] for columns in sorted(largest)]
    places = [_columns(row) for row in here]
    panel.plot(places, [row["limit"]["add"] for row in here], "k--", label=_LIMIT)
    for name, rates in _lines(here).items():
        wide = name == "gradkern"
        panel.plot(places, rates, "o-" if wide else ".-", linewidth=2 if wide else 1.2, color=_COLORS[name], label=name)
    panel.set_xscale("log", base=2)
    panel.set_xlabel("columns")


def _by_size(panel: Any, rows: list[Row]) -> None:
    """Bars, one group for each size."""
    lines = _lines(rows)
    width = 0.8 / len(lines)
    for place, (name, rates) in enumerate(lines.items()):
        panel.bar([x + place * width for x in range(len(rows))], rates, width, color=_COLORS[name], label=name)
    middle = [x + 0.4 - width / 2 for x in range(len(rows))]
    panel.plot(middle, [row["limit"]["add"] for row in rows], "k_", markersize=30, label=_LIMIT)
    panel.set_xticks(middle, [size_of(row) for row in rows], fontsize=5, rotation=40, ha="right")


def _lines(rows: list[Row]) -> dict[str, list[float]]:
    peers = sorted({peer for row in rows for peer in row["peers"]})
    lines = {"gradkern": [row["gigabytes_per_second"] for row in rows]}
    lines |= {peer: [row["bytes"] / row["peers"].get(peer, math.nan) / 1e3 for row in rows] for peer in peers}
    return lines


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
    axes.margins(x=0.2, y=0.01)  # to the right there is room for the numbers
    axes.set_xlabel("peer's time / gradkern's")
    axes.legend()
    return figure
