"""What tools/bench.py and tools/train_digits.py measured, as tables for the README and the results pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench_rows
import train_tables
from bench_rows import Row
from markdown_table import table
from override_table import shown

import gradkern

__all__ = [
    "RESULTS",
    "cold",
    "compiled_calls",
    "cpu",
    "digits",
    "forward",
    "gains",
    "gpu_origin",
    "h100",
    "h200",
    "measured",
    "others",
    "overrides",
    "train",
]

RESULTS = Path(__file__).resolve().parent / "results"
PEERS = ("torch", "cudnn", "compile", "liger")  # of the benchmark on a GPU


def measured(file: str) -> Row:
    """A file of results; without rows where there is none. Tables of no rows are empty texts."""
    path = RESULTS / file
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}


def digits() -> str:
    """What the demo reached, and where its time went."""
    run = measured("digits.json")
    if not run.get("operators"):
        return ""
    rows = [
        [f"`{each['operator']}`", str(each["calls"]), f"{each['total_ms'] / 1e3:.2f}", f"{each['mean_us']:.0f}"]
        for each in run["operators"]
    ]
    epochs, seconds = run["config"]["epochs"], run["seconds"]
    reached = f"{run['accuracy']:.2%} of the held-out digits right after {epochs} epochs, in {seconds:.0f} s:"
    return f"{reached}\n\n{table(('operator', 'calls', 'seconds', 'microseconds a call'), rows)}"


def cpu() -> str:
    """Times of the CPU provider and PyTorch's CPU kernels, measured in one run."""
    results = measured("cpu.json")
    if not results["rows"]:
        return ""
    rows: list[list[str]] = []
    for row in results["rows"]:
        torch = row["peers"].get("torch")
        flops = row["gigaflops_per_second"]
        rate = f"{flops:.0f} GFLOP/s" if flops else f"{row['gigabytes_per_second']:.1f} GB/s"
        ratio = f"{torch / row['microseconds']:.2f}" if torch else "no such gradient"
        size = row["size"].replace("x", "×")
        rows.append(
            [f"`{row['operator']}`", size, f"{row['microseconds'] / 1e3:.2f}", f"{row['spread']:.0%}", rate, ratio]
        )
    head = ("operator", "size", "ms", "spread", "rate", "PyTorch's time / gradkern's")
    return f"{table(head, rows)}\n\n{_origin(results['machine'])}"


def cold() -> str:
    """Seconds of the first step in fresh processes."""
    results = measured("cold.json")
    rows = [row for row in results["rows"] if "failed" not in row]
    if not rows:
        return ""
    machine = results["machine"]
    cells: list[list[str]] = []
    for work in dict.fromkeys(row["work"] for row in rows):
        by_process = {row["process"]: row for row in rows if row["work"] == work}
        any_row = next(iter(by_process.values()))
        asked = [(by_process.get(process, {}), f"{phase}_seconds") for process, phase in COLD]
        seconds = [f"{row[phase]:.2f}" if phase in row else "" for row, phase in asked]
        count = str(len(any_row["calls"]))
        slowest = [f"{max(call['seconds'] for call in row['calls']):.2f}" for row in (by_process.get("empty"),) if row]
        cells.append([f"`{work}`", any_row["type"], count, *seconds, *(slowest or [""])])
    loads = ((each, [row[f"{each}_seconds"] for row in rows if f"{each}_seconds" in row]) for each in LOADS)
    loaded = ", ".join(f"{LOADS[each]} {max(times):.1f} s" for each, times in loads if times)
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    where = gpu_origin(machine, packages) if "gpu" in machine else _origin(machine).rstrip(".")
    head = (
        "work",
        "type",
        "gradients",
        "empty cache, searching",
        "with pack, searching",
        "with pack, by default",
        "then `tune()`",
        "second process",
        "PyTorch",
        "slowest call, empty cache",
    )
    loading = [f"Loading takes at most: {loaded}."] if loaded else []
    return "\n\n".join((table(head, cells), *loading, f"{where}."))


COLD = (
    ("empty", "first"),
    ("pack", "first"),
    ("background", "first"),
    ("background", "tune"),
    ("second", "first"),
    ("torch", "first"),
)
"""Process and phase of each column."""
LOADS = {"framework": "PyTorch and its context", "import": "gradkern", "libraries": "the libraries that gradkern calls"}


def gains() -> str:
    """What gradkern gains in the training steps of whole models, for the README."""
    rows = measured("train.json")["rows"]
    return "\n\n".join((train_tables.gains(rows, 12), _train_origin(rows))) if rows else ""


def train() -> str:
    """The same steps with every cell, and their kernels by kind."""
    rows = measured("train.json")["rows"]
    if not rows:
        return ""
    every = f"<details><summary>Every cell</summary>\n\n{train_tables.steps(rows)}\n\n</details>"
    parts = (train_tables.gains(rows), train_tables.loss_calls(rows), train_tables.kinds(rows), every)
    return "\n\n".join((*filter(None, parts), _train_origin(rows)))


def _train_origin(rows: Sequence[Row]) -> str:
    """Rows may come from several days and GPUs."""
    origins: dict[str, list[str]] = {}
    for row in rows:
        machine = row["machine"]
        packages = ", ".join(f"{name} {machine['packages'][name]}" for name in TRAINING if name in machine["packages"])
        origins.setdefault(gpu_origin(machine, packages), []).append(row["model"])
    (first, _), *others = sorted(origins.items(), key=lambda each: -len(each[1]))
    return (
        "; ".join([first, *(f"{', '.join(names)}: {origin[:1].lower()}{origin[1:]}" for origin, names in others)]) + "."
    )


TRAINING = ("torch", "triton", "torchvision", "timm", "transformers", "diffusers", "monai")


def overrides() -> str:
    """What a call through enable() costs the host."""
    results = measured("overrides.json")
    return f"{shown(results['rows'])}\n\n{_on_host(results)}" if results["rows"] else ""


def compiled_calls() -> str:
    """What calls of gradkern's operators from compiled code cost the host, and the kernels beside them together."""
    results = measured("compiled_calls.json")
    if not results["rows"]:
        return ""
    ours = [[f"`{row['call']}`", f"{row['us']:.1f}"] for row in results["rows"] if row["of"] == "gradkern"]
    launches = sorted(row["us"] for row in results["rows"] if row["of"] == "Triton")
    if launches:
        ours.append([f"{len(launches)} kernels of Triton's", f"{launches[0]:.1f} to {launches[-1]:.1f}"])
    return f"{table(['call', 'us'], ours)}\n\n{_on_host(results)}"


def _on_host(results: Row) -> str:
    """What times of a host beside a GPU depend on."""
    machine = results["machine"]
    packages = f"torch {machine['packages']['torch']}, {machine['processor']}, Python {machine['python']}"
    return f"{gpu_origin(machine, packages)}."


def h200() -> str:
    """Gradients on a GPU, the limit and the peers."""
    return _on_gpu("h200.json")


def h100() -> str:
    """The same on another GPU."""
    return _on_gpu("h100.json")


def forward() -> str:
    """The same of forward passes."""
    return _on_gpu("forward.json")


def others() -> str:
    """The same of losses, group norms, gathers, pools, resizing, rotary embeddings and element-wise operators."""
    return _on_gpu("others.json")


def _on_gpu(file: str) -> str:
    """GB/s of the CUDA kernels, the limit and the peers, measured together."""
    results = measured(file)
    rows = results["rows"]
    if not rows:
        return ""
    peers = [peer for peer in PEERS if any(peer in row["peers"] for row in rows)]
    machine = results["machine"]
    names = ("torch", "triton", "liger-kernel", "numba-cuda")
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in names)
    parts = (
        _ranges(rows, peers),
        f"<details><summary>Every size</summary>\n\n{_every_size(rows, peers)}\n\n</details>",
        f"{gpu_origin(machine, packages)}; [`{file}`]({file}) has the commands.",
    )
    return "\n\n".join(parts)


def _ranges(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """A row for each operator, type and set of outputs: the least and the most over all sizes."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault((f"`{row['operator']}`", bench_rows.type_of(row), _outputs(row)), []).append(row)
    cells: list[list[str]] = []
    for what, each in kinds.items():
        ratios = [[_ratio(row, peer) for row in each if peer in row["peers"]] for peer in peers]
        shares = [row["share_of_limit"] for row in each]
        cells.append([*what, str(len(each)), _range(shares), *map(_range, ratios)])
    return table(("operator", "type", "outputs", "sizes", "of the limit", *_over_gradkern(peers)), cells)


def _every_size(rows: Sequence[Row], peers: Sequence[str]) -> str:
    cells: list[list[str]] = []
    for row in rows:
        times = [f"{_ratio(row, peer):.2f}" if peer in row["peers"] else "-" for peer in peers]
        what = [f"`{row['operator']}`", bench_rows.size_of(row), bench_rows.type_of(row), _outputs(row)]
        rate = [f"{row['microseconds']:.1f}", f"{row['gigabytes_per_second']:.0f}", f"{row['share_of_limit']:.3f}"]
        cells.append([*what, *rate, *times])
    return table(("operator", "size", "type", "outputs", "µs", "GB/s", "of the limit", *_over_gradkern(peers)), cells)


def _outputs(row: Row) -> str:
    every = [each.name for each in gradkern.operators()[row["operator"]].outputs if not each.appended]
    return "all" if row["outputs"] == every else ", ".join(row["outputs"])


def _over_gradkern(peers: Sequence[str]) -> list[str]:
    return [f"{peer} / gradkern" for peer in peers]


def _ratio(row: Row, peer: str) -> float:
    return row["peers"][peer] / row["microseconds"]


def _range(numbers: Sequence[float]) -> str:
    if not numbers:
        return "-"
    least, most = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return least if least == most else f"{least} to {most}"


def _origin(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"Measured {machine['date']} on {machine['processor']}, {machine['cores']} cores, "
        f"Python {machine['python']}, {packages}, with `tools/{machine['commands'][0]}`."
    )


def gpu_origin(machine: dict[str, Any], packages: str) -> str:
    """Where and when something was measured on a GPU."""
    gpu = f"{machine['gpu']}, driver {machine['driver']}, CUDA {machine['cuda']}"
    return f"Measured {machine['date']} on one {gpu}, {packages}"
