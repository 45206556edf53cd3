#!/usr/bin/env python3
"""What the benchmark measured, drawn: one picture says one thing, which its title names.

    tools/bench_plot.py tools/results/h200.json tools/results/layer-norms.png LayerNormalizationGrad ...

draws some operators of a file of results, on any machine. On a GPU it is the share of the limit that is reached, which
is torch.add on as many bytes, measured in the same run; else how much longer the peers take.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from bench_rows import Row, most_measured_type, size_of, type_of
from matplotlib.figure import Figure

_COLORS = {"gradkern": "C0", "torch": "C1", "compile": "C2", "liger": "C3", "cudnn": "C4"}
_NAMES = {"torch": "PyTorch", "compile": "torch.compile", "liger": "Liger", "cudnn": "cuDNN"}


def main() -> int:
    """Draw what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="JSON of tools/bench.py")
    parser.add_argument("picture", type=Path, help="a file to write, PNG or SVG")
    parser.add_argument("operators", nargs="*", help="by default all")
    options = parser.parse_args()
    rows = json.loads(options.results.read_text(encoding="utf-8"))["rows"]
    chosen = [row for row in rows if not options.operators or row["operator"] in options.operators]
    if not chosen:
        parser.error("no row of these operators")
    options.picture.write_bytes(drawn(chosen, options.picture.suffix.lstrip(".") or "png"))
    return 0


def drawn(rows: list[Row], format_: str) -> bytes:
    """A picture of the rows, in a format matplotlib knows."""
    figure = _shares(rows) if all("limit" in row for row in rows) else _ratios(rows)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format_, dpi=130)
    return buffer.getvalue()


def _shares(rows: list[Row]) -> Figure:
    """The share of the limit by gradkern and the peers; a panel per operator, of its most measured type and outputs."""
    operators = list(dict.fromkeys(row["operator"] for row in rows))
    here = {name: _most_measured([row for row in rows if row["operator"] == name]) for name in operators}
    by_columns = {name: "columns" in each[0]["axes"] for name, each in here.items()}
    heights = [2.6 if by_columns[name] else 0.9 + 0.26 * len(each) for name, each in here.items()]
    figure = Figure(figsize=(8, sum(heights) + 1), layout="constrained")
    panels = figure.subplots(len(operators), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, (name, each) in zip(panels, here.items(), strict=True):
        (_over_columns if by_columns[name] else _by_size)(panel, each)
        panel.set_title(f"{name}, {type_of(each[0])}: {', '.join(each[0]['outputs'])}", fontsize=9, loc="left")
        panel.grid(alpha=0.3)
    labelled = {}
    for panel in panels:
        labelled |= {label: line for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=5, fontsize=9)
    median = statistics.median(row["share_of_limit"] for each in here.values() for row in each)
    figure.suptitle(f"Share of the memory's limit that is reached, by gradkern {median:.0%} in the median", fontsize=12)
    return figure


def _most_measured(rows: list[Row]) -> list[Row]:
    """The rows of the type of which there are most, and of those outputs of it."""
    dtype = most_measured_type(rows)
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if type_of(row) == dtype:
            kinds.setdefault(tuple(row["outputs"]), []).append(row)
    return max(kinds.values(), key=len)


def _over_columns(panel: Any, rows: list[Row]) -> None:
    """Lines over the number of columns, at the largest size of each; odd numbers, whose rows have no alignment, are no
    part of a line.
    """
    largest = {_columns(row): row for row in sorted(rows, key=lambda row: row["bytes"])}
    even, odd = ([largest[n] for n in sorted(largest) if n % 2 == rest] for rest in (0, 1))
    for name in _libraries(rows):
        color, label = _COLORS[name], _NAMES.get(name, name)
        width = 2 if name == "gradkern" else 1.2
        panel.plot(*_points(even, name), "o-", markersize=4, linewidth=width, color=color, label=label)
        panel.plot(*_points(odd, name), "o", markersize=6, fillstyle="none", color=color)
    panel.set_xscale("log", base=2)
    panel.set_xlabel("columns; hollow points: an odd number" if odd else "columns", fontsize=8)
    _set_share(panel.set_ylim, panel.set_ylabel, panel.axhline)


def _points(rows: list[Row], name: str) -> tuple[list[int], list[float]]:
    """Of the rows where the library was measured: the columns and the shares."""
    shares = [(_columns(row), _share(row, name)) for row in rows]
    known = [(columns, share) for columns, share in shares if not math.isnan(share)]
    return [columns for columns, _ in known], [share for _, share in known]


def _by_size(panel: Any, rows: list[Row]) -> None:
    """A line of points for each size."""
    for name in reversed(_libraries(rows)):
        shares = [_share(row, name) for row in rows]
        panel.plot(shares, range(len(rows)), "o", markersize=6, color=_COLORS[name], label=_NAMES.get(name, name))
    panel.set_yticks(range(len(rows)), [size_of(row) for row in rows], fontsize=8)
    panel.invert_yaxis()
    _set_share(panel.set_xlim, panel.set_xlabel, panel.axvline)


def _set_share(limits: Any, label: Any, line: Any) -> None:
    limits(0, 1.05)
    line(1, color="black", linestyle="--", linewidth=1)
    label("share of the limit", fontsize=8)


def _libraries(rows: list[Row]) -> list[str]:
    return ["gradkern", *sorted({peer for row in rows for peer in row["peers"]})]


def _share(row: Row, name: str) -> float:
    microseconds = row["microseconds"] if name == "gradkern" else row["peers"].get(name, math.nan)
    return row["bytes"] / microseconds / 1e3 / row["limit"]["add"]


def _columns(row: Row) -> int:
    size = row["axes"]["columns"]
    return math.prod(size) if isinstance(size, list | tuple) else size


def _ratios(rows: list[Row]) -> Figure:
    """How much longer each peer takes than gradkern on the same work: a line for each operator and type."""
    shown = [row for row in rows if row.get("peers")]
    if not shown:
        sys.exit("--plot draws gradkern against peers; name some with --peers")
    peers = sorted({peer for row in shown for peer in row["peers"]})
    kinds = list(dict.fromkeys(f"{row['operator']}, {type_of(row)}" for row in shown))
    figure = Figure(figsize=(8, 1.4 + 0.3 * len(kinds)), layout="constrained")
    axes = figure.subplots()
    for peer in peers:
        here = [row for row in shown if peer in row["peers"]]
        ratios = [row["peers"][peer] / row["microseconds"] for row in here]
        places = [kinds.index(f"{row['operator']}, {type_of(row)}") for row in here]
        axes.plot(ratios, places, "o", alpha=0.7, color=_COLORS[peer], label=_NAMES[peer])
    axes.set_yticks(range(len(kinds)), kinds, fontsize=8)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    figure.suptitle(f"Time of {' and '.join(_NAMES[each] for each in peers)} over gradkern's, a point for each size")
    if len(peers) > 1:
        axes.legend()
    return figure


if __name__ == "__main__":
    sys.exit(main())
