"""What tools/conv_bench.py measured, drawn: PyTorch's time over gradkern's, for every layer, setting and gradient."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

__all__ = ["drawn"]

_MARKS = {"float16": "o", "bfloat16": "v", "bfloat16-nchw": "x", "tf32": "s", "float32": "D", "float64": "^"}
Row = dict[str, Any]


def drawn(rows: list[Row], format_: str) -> bytes:
    """A picture in a format matplotlib knows: a panel for each set of outputs, layers from left to right."""
    layers = list(dict.fromkeys((row["network"], row["layer"]) for row in rows))
    panels = list(dict.fromkeys(row["outputs"] for row in rows))
    figure = Figure(figsize=(0.22 * len(layers) + 2.5, 2.6 * len(panels) + 2.4), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for panel, outputs in zip(axes, panels, strict=True):
        for number, (setting, mark) in enumerate(_MARKS.items()):
            here = [row for row in rows if row["outputs"] == outputs and row["setting"] == setting]
            places = [layers.index((row["network"], row["layer"])) for row in here]
            ratios = [row["torch_over_gradkern"] for row in here]
            panel.plot(places, ratios, mark, markersize=4, color=f"C{number}", label=setting)
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set_yscale("log", base=2)
        panel.yaxis.set_major_locator(FixedLocator([1 / 32, 1 / 8, 0.5, 1, 2, 4, 8, 16, 32]))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.set_title(f"{outputs}: PyTorch's time / gradkern's", fontsize=9)
        panel.grid(alpha=0.3)
    axes[-1].set_xticks(
        range(len(layers)), [f"{network} {layer}" for network, layer in layers], rotation=90, fontsize=6
    )
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(_MARKS), fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format_, dpi=130)
    return buffer.getvalue()
