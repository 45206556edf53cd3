"""What tools/sweep.py measured: medians, least values and the worst draws."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import result_tables
from bench_rows import Row
from markdown_table import table
from result_tables import gpu_origin, measured

__all__ = ["HEAD", "lines", "sweep", "worst"]

PEERS = ("torch", "compile", "liger", "cudnn")
HEAD = ("kind", "MB", "L2", "seed", "draws", "of the floor", *(f"{peer} / gradkern" for peer in PEERS))


def sweep() -> str:
    """The tables for the results pages, of every GPU that a sweep ran on."""
    every = (measured(path.name) for path in sorted(result_tables.RESULTS.glob("sweep*.json")))
    return "\n\n".join(_of_a_gpu(each) for each in every if lines(each["rows"]))


def _of_a_gpu(results: dict[str, Any]) -> str:
    rows, machine = results["rows"], results["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    text = f"{machine['gpu']}, medians, and in parentheses the least:"
    return f"{text}\n\n{table(HEAD, lines(rows))}\n\n{gpu_origin(machine, packages)}."


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each kind, range, state of the L2 and seed: the median, and in parentheses the least."""
    groups: dict[tuple[str, str, bool, int], list[Row]] = {}
    for row in rows:
        if "failed" not in row:
            groups.setdefault((row["kind"], row["range"], row["warm"], row["seed"]), []).append(row)
    made: list[list[str]] = []
    for (kind, range_, warm, seed), each in groups.items():
        ratios = (_middle([_ratio(row, peer) for row in each if peer in row["peers"]]) for peer in PEERS)
        shares = [] if kind == "conv" else [row["share_of_floor"] for row in each if "share_of_floor" in row]
        what = [kind, range_, "warm" if warm else "cold", str(seed), str(len(each))]
        made.append([*what, _middle(shares), *ratios])
    return made


def worst(rows: Sequence[Row], count: int) -> dict[str, list[tuple[float, Row]]]:
    """By what is judged, the draws with the least values: shares of the floor, and each peer's time over gradkern's."""
    measured = [row for row in rows if "failed" not in row]
    found = {"of the floor": [(row["share_of_floor"], row) for row in measured if "share_of_floor" in row]}
    found["of the floor"] = [(share, row) for share, row in found["of the floor"] if row["kind"] != "conv"]
    for peer in PEERS:
        found[f"{peer} / gradkern"] = [(_ratio(row, peer), row) for row in measured if peer in row["peers"]]
    return {title: sorted(each, key=lambda pair: pair[0])[:count] for title, each in found.items() if each}


def _ratio(row: Row, peer: str) -> float:
    return row["peers"][peer] / row["microseconds"]


def _middle(numbers: Sequence[float]) -> str:
    return f"{statistics.median(numbers):.2f} ({min(numbers):.2f})" if numbers else ""
