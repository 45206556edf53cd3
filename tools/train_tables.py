"""What tools/train_bench.py measured, as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from kernel_kinds import KINDS
from markdown_table import table

__all__ = ["gains", "geometric_mean", "kinds", "loss_calls", "ratio", "steps"]

Row = dict[str, Any]
_PEERS = {"gradkern": "compile", "gradkern+graph": "compile+graph", "gradkern loss": "compile loss"}


def ratio(row: Row, column: str) -> float | None:
    """The time of torch.compile, in the same call, over that of one of gradkern's columns."""
    ours, theirs = (_ms(row, each) for each in (column, _PEERS[column]))
    return theirs / ours if ours and theirs else None


def geometric_mean(numbers: Iterable[float]) -> float:
    logs = [math.log(each) for each in numbers]
    return math.exp(sum(logs) / len(logs))


def gains(rows: Sequence[Row], most: int | None = None) -> str:
    """A line for each model whose steps were timed, for the first of them, by every column; and what gradkern gains
    over torch.compile, in the mean of all.
    """
    every = ("eager", "enable", "compile", "gradkern", "compile+graph", "gradkern+graph")
    ratios = {"gradkern": "compile / gradkern", "gradkern+graph": "the same in a graph"}
    rows = [row for row in rows if any(_ms(row, each) for each in every)] or rows
    columns = [each for each in every if any(_ms(row, each) for row in rows)]
    head, lines = ["model (batch)", "GPU"], [[_name(row), _gpu(row)] for row in rows]
    for column in columns:
        head += [column, *([ratios[column]] if column in ratios else [])]
        for line, row in zip(lines, rows, strict=True):
            line.append(_number(_ms(row, column), 1))
            line += [_number(ratio(row, column), 3)] if column in ratios else []
    means = []
    for column, where in zip(ratios, ("", "in a graph "), strict=True):
        found = [each for each in (ratio(row, column) for row in rows) if each]
        means += [f"{where}{geometric_mean(found):.3f} of {len(found)} rows"] if found else []
    return "\n\n".join([table(head, lines[:most]), *([f"Geometric means: {', '.join(means)}."] if means else [])])


def loss_calls(rows: Sequence[Row]) -> str:
    """Language models by a compiled function of the loss alone, beside the compiled model, whose logits are outputs.
    Empty where none was measured.
    """
    columns = ("compile", "gradkern", "compile loss", "gradkern loss")
    lines = [
        [_name(row), _gpu(row), *(_number(_ms(row, each), 1) for each in columns), _number(ratio(row, columns[3]), 3)]
        for row in rows
        if _ms(row, "compile loss")
    ]
    return table(["model (batch)", "GPU", *columns, "compile loss / gradkern loss"], lines) if lines else ""


def steps(rows: Sequence[Row]) -> str:
    """A line for each cell, with its reason where there is no time."""
    head = ["model (batch)", "GPU", "column", "ms", "quartiles", "kernels ms", "MiB", "gradient error", "sites"]
    lines: list[list[str]] = []
    for row in rows:
        where = [_name(row), _gpu(row)]
        if "error" in row:
            lines.append([*where, "", row["error"], *[""] * 5])
        for column, each in row.get("columns", {}).items():
            quartiles = "{:.2f} to {:.2f}".format(*each["quartiles"]) if "quartiles" in each else ""
            time = each.get("error") or _number(each.get("ms"), 2)
            error = f"{each['gradient_error']:.2e}" if "gradient_error" in each else ""
            sites = f"{each['fused']} of {each['fused'] + sum(each['left'].values())}" if "fused" in each else ""
            numbers = [_number(each.get("kernels_ms"), 2), _number(each.get("memory_mib"), 0)]
            lines.append([*where, column, time, quartiles, *numbers, error, sites])
    return table(head, lines)


def kinds(rows: Sequence[Row], columns: Sequence[str] = ("eager", "compile", "gradkern")) -> str:
    """The milliseconds of a step's kernels by kind, of its graph where that was counted; empty where none were."""
    lines = []
    for row, column in product(rows, columns):
        every = row.get("columns", {})
        each = next((every[name] for name in (f"{column}+graph", column) if "kinds" in every.get(name, {})), None)
        if each is not None:
            times = each["kernels_ms"], *map(each["kinds"].get, KINDS)
            lines.append([_name(row), column, *(_number(time, 2) for time in times)])
    return table(["model (batch)", "column", "kernels", *KINDS], lines) if lines else ""


def _ms(row: Row, column: str) -> float | None:
    return row.get("columns", {}).get(column, {}).get("ms")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _name(row: Row) -> str:
    """The model, and the sizes of its largest input."""
    shapes = row.get("batch", {}).values()
    largest = max(shapes, key=math.prod, default=())
    return f"{row['model']} ({'x'.join(map(str, largest))})" if largest else row["model"]


def _gpu(row: Row) -> str:
    return row["machine"].get("gpu", "CPU").removeprefix("NVIDIA ").partition(" ")[0]
