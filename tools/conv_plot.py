"""What tools/conv_bench.py measured, drawn: PyTorch's time over gradkern's, of every layer of each network."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

__all__ = ["drawn"]

_TYPES = {
    "float16": "16 bits",
    "bfloat16": "16 bits",
    "bfloat16-nchw": "16 bits",
    "tf32": "float32 in TF32",
    "float32": "float32",
    "float64": "float64",
}
Row = dict[str, Any]


def drawn(rows: list[Row], format_: str) -> bytes:
    """A picture in a format matplotlib knows: a panel for each set of outputs, a line for each kind of layers, a point
    for each of them.
    """
    kinds = list(dict.fromkeys(map(_kind, rows)))
    types = list(dict.fromkeys(_TYPES.values()))
    panels = list(dict.fromkeys(row["outputs"] for row in rows))
    figure = Figure(figsize=(3.2 * len(panels) + 1.6, 0.5 * len(kinds) + 1.6), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for panel, outputs in zip(axes, panels, strict=True):
        for number, name in enumerate(types):
            here = [row for row in rows if row["outputs"] == outputs and _TYPES[row["setting"]] == name]
            places = [kinds.index(_kind(row)) + 0.18 * (number - (len(types) - 1) / 2) for row in here]
            ratios = [row["torch_over_gradkern"] for row in here]
            panel.plot(ratios, places, "o", markersize=3.5, alpha=0.6, color=f"C{number}", label=name)
        panel.axvline(1, color="black", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator([0.5, 1, 2, 4, 8, 16]))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.set_title(outputs.replace(",", ", "), fontsize=10)
        panel.grid(alpha=0.3)
    axes[0].set_yticks(range(len(kinds)), kinds, fontsize=9)
    axes[0].set_ylim(len(kinds) - 0.5, -0.5)
    figure.suptitle("Convolutions: PyTorch's time over gradkern's, a point for each layer", fontsize=12)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(types), fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format_, dpi=130)
    return buffer.getvalue()


def _kind(row: Row) -> str:
    return row["network"] + (", depthwise" if "depthwise" in row["layer"] else "")
