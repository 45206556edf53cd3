"""What tools/train_bench.py measured, drawn: how many times as fast as eager mode a step is."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure

__all__ = ["drawn"]

Row = dict[str, Any]


def drawn(rows: list[Row], format_: str) -> bytes:
    """A picture in a format matplotlib knows: a group of bars for each model, of the fastest row of each column."""
    by_time = sorted((row for row in rows if "step" in row), key=lambda row: -row["step"])
    steps = {(row["model"], row["column"]): row["step"] for row in by_time}
    columns = list(dict.fromkeys(row["column"] for row in rows if "step" in row and row["column"] != "eager"))
    models = [model for model in dict.fromkeys(row["model"] for row in rows) if (model, "eager") in steps]
    figure = Figure(figsize=(1.7 * max(len(models), 3), 4.2), layout="constrained")
    panel = figure.subplots()
    width = 0.84 / max(len(columns), 1)
    for number, column in enumerate(columns):
        here = [place for place, model in enumerate(models) if (model, column) in steps]
        speeds = [steps[models[place], "eager"] / steps[models[place], column] for place in here]
        left = [place + (number - (len(columns) - 1) / 2) * width for place in here]
        panel.bar(left, speeds, width, color=f"C{number}", label=column)
    panel.axhline(1, color="black", linewidth=0.8)
    panel.set_xticks(range(len(models)), models, fontsize=8)
    panel.set_ylabel("eager step / this")
    panel.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format_, dpi=130)
    return buffer.getvalue()
