"""What tools/distributed_bench.py measured, as tables: for its output and for the results pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bench_rows import Row
from markdown_table import table
from result_tables import measured

__all__ = ["SYMMETRIC", "distributed", "message_us", "printed", "simulated"]

SYMMETRIC = "gradkern, symmetric memory"
Rows = list[Row]
Found = Mapping[str, Any]

NODE, BETWEEN = 8, 12.0
ASSUMED = (
    f"Simulated, not measured. A message among W processes takes a + b log2(W) within a node of {NODE} GPUs, by the "
    "line through the least and the most processes that were measured here (where these are two, b is half of what "
    f"two take), and {BETWEEN:.0f} us more for each doubling of the number of nodes. All else of a step takes what it "
    "takes here, messages of DistributedDataParallel too. Nobody is late."
)


def message_us(rows: Rows, kind: str, channels: int, size: int) -> float:
    """What a message would take among so many processes."""
    known = {row["size"]: row["us"][kind] for row in rows if row["channels"] == channels}
    least, most = min(known), max(known)
    slope = (known[most] - known[least]) / math.log2(most / least) if most > least else known[least] / 2
    inside, nodes = min(size, NODE), max(1, size // NODE)
    return known[least] + max(0.0, slope) * math.log2(inside / least) + BETWEEN * math.log2(nodes)


def simulated(found: Mapping[str, Any], size: int) -> dict[str, float]:
    """ResNet-50's step among so many processes, by peer, whose batch norms all have two messages each."""
    rows, known = found["messages"], {row["channels"] for row in found["messages"]}
    more = 0.0
    for channels, norms in found["norms"].items():
        nearest = min(known, key=lambda each: abs(each - int(channels)))  # in a file of JSON: text
        for kind in ("gather", "reduce"):
            more += norms * (message_us(rows, kind, nearest, size) - message_us(rows, kind, nearest, found["size"]))
    step = {name: us for name, us in found["ResNet-50"].items() if name != SYMMETRIC}  # of which no law is known here
    return {name: us + (more if name != "local" else 0.0) for name, us in step.items()}


def distributed() -> str:
    """Synchronised batch norm, layer by layer and in ResNet-50's step, and models, for the results pages."""
    parts: list[str] = []
    for file in ("distributed.json", "distributed_models.json"):
        found = measured(file)
        made = [make(found) for part, make in _PAGE.items() if found.get(part)]
        parts += [*made, _origin(found, file)] if made else []
    return "\n\n".join(parts)


def _origin(found: Found, file: str) -> str:
    machine = found["machine"]
    gpus = f"{found['size']} {machine['gpu']}, driver {machine['driver']}"
    torch = machine["packages"]["torch"]
    return f"Measured {machine['date']} on {gpus}, torch {torch}; [`{file}`]({file}) has the command."


def printed(found: Found) -> str:
    """Every part that was measured."""
    makers = {**_PAGE, "messages": _messages, "overlap": _overlap}
    return "\n\n".join(make(found) for part, make in makers.items() if part in found)


def _layers(found: Found) -> str:
    names = list(found["layers"][0]["us"])
    ours = [name for name in names if name.startswith("gradkern") and "torch" in names]
    prices = [f"{name}: price, of PyTorch's" for name in ours]
    head = ["channels", "side", "mode", *(f"{name}, us" for name in names), *prices]
    rows = [
        [
            str(row["channels"]),
            str(row["side"]),
            row["mode"],
            *(f"{us:.1f}" for us in row["us"].values()),
            *(f"{price(row['us'], name):.2f}" for name in ours),
        ]
        for row in found["layers"]
    ]
    return table(head, rows)


def _messages(found: Found) -> str:
    rows = [
        [str(row["size"]), str(row["channels"]), f"{row['us']['gather']:.1f}", f"{row['us']['reduce']:.1f}"]
        for row in found["messages"]
    ]
    return table(["processes", "channels", "gather, us", "reduce, us"], rows)


def _resnet(found: Found) -> str:
    """Also among more processes than there were, where messages were measured."""
    names = list(found["ResNet-50"])
    rows = [[str(found["size"]), *(f"{us / 1e3:.2f}" for us in found["ResNet-50"].values())]]
    for size in (8, 64) if found.get("messages") else ():
        us = simulated(found, size)
        rows.append([f"{size}, simulated", *(f"{us[name] / 1e3:.2f}" if name in us else "" for name in names)])
    steps = table(["processes", *(f"{name}, ms" for name in names)], rows)
    return f"{steps}\n\n{ASSUMED}" if found.get("messages") else steps


def _models(found: Found) -> str:
    rows = [
        [name, column, *(f"{each[key]:.4g}" for key in ("ms", "first_seconds", "loss"))]
        for name, columns in found["models"].items()
        for column, each in columns.items()
    ]
    return table(["model", "column", "ms", "first step, s", "loss of the fifth step"], rows)


def _overlap(found: Found) -> str:
    rows = [[name, *(f"{us / 1e3:.2f}" for us in each.values())] for name, each in found["overlap"].items()]
    return table(["ResNet-50 by", *(f"{name}, ms" for name in found["overlap"]["eager"])], rows)


_PAGE = {"layers": _layers, "ResNet-50": _resnet, "models": _models}


def price(us: Mapping[str, float], name: str) -> float:
    """What this costs more than the local batch norm, as a share of what PyTorch's does."""
    return (us[name] - us["local"]) / (us["torch"] - us["local"])
