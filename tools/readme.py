#!/usr/bin/env python3
"""Write the parts of README.md that come from elsewhere: operators from the registry, figures from tools/results.

    tools/readme.py            write them into README.md
    tools/readme.py --check    exit with 1 where README.md is not what they would make it

A part stands between <!-- begin NAME --> and <!-- end NAME -->.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tools" / "results"
sys.path.insert(0, str(ROOT))

import gradkern


def main() -> int:
    """Write README.md, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where something would change")
    options = parser.parse_args()
    path = ROOT / "README.md"
    before = path.read_text(encoding="utf-8")
    after = before
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not pattern.search(after):
            sys.exit(f"README.md has no part <!-- begin {name} -->")
        text = make().replace("\\", r"\\")
        after = pattern.sub(rf"\g<1>{text}\n\g<2>", after)
    if before == after:
        return 0
    if options.check:
        print("README.md is out of date; run tools/readme.py", file=sys.stderr)
        return 1
    path.write_text(after, encoding="utf-8")
    return 0


def operators() -> str:
    """The table of operators."""
    rows = []
    for name, operator in gradkern.operators().items():
        outputs = (f"{each.name}" if each.default else f"{each.name} (on request)" for each in operator.outputs)
        in_place = (f"{target} over {source}" for source, target in sorted(operator.in_place_pairs))
        inputs = (each.name for each in operator.inputs)
        cells = [f"`{name}`", *map(", ".join, (inputs, outputs, operator.attributes, in_place, operator.data_types))]
        rows.append([*cells, ", ".join(operator.providers)])
    return _table(("operator", "inputs", "outputs", "attributes", "in place", "types of the data", "providers"), rows)


def cpu() -> str:
    """Times of the CPU provider and PyTorch's CPU kernels, measured in one run."""
    results = json.loads((RESULTS / "cpu.json").read_text())
    rows = []
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
    return f"{_table(head, rows)}\n\n{_origin(results['machine'])}"


def h200() -> str:
    """GB/s of the CUDA kernels, the limit and the peers, measured in one run."""
    results = json.loads((RESULTS / "h200.json").read_text())
    peers = [peer for peer in ("torch", "compile", "liger") if any(peer in row["peers"] for row in results["rows"])]
    rows = []
    for row in results["rows"]:
        times = [f"{row['peers'][peer] / row['microseconds']:.2f}" if peer in row["peers"] else "-" for peer in peers]
        all_outputs = [each.name for each in gradkern.operators()[row["operator"]].outputs]
        outputs = "all" if row["outputs"] == all_outputs else ", ".join(row["outputs"])
        size = _size(row)
        cells = [f"`{row['operator']}`", size, next(iter(row["types"].values())), outputs, f"{row['microseconds']:.1f}"]
        cells += [f"{row['gigabytes_per_second']:.0f}", f"{row['share_of_limit']:.3f}"]
        rows.append([*cells, *times])
    machine = results["machine"]
    measured = ("µs", "GB/s", "of the limit", *(f"{peer} / gradkern" for peer in peers))
    head = ("operator", "size", "type", "outputs", *measured)
    names = ("torch", "triton", "liger-kernel", "numba-cuda")
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in names)
    gpu = f"{machine['gpu']}, driver {machine['driver']}, CUDA {machine['cuda']}"
    origin = f"Measured {machine['date']} on one {gpu}, {packages}."
    return f"{_table(head, rows)}\n\n{origin}"


def _size(row: dict[str, Any]) -> str:
    """Rows×columns, or the sizes of the data; with the order in memory where it is not the usual one."""
    axes = row["axes"]
    names = ("rows", "columns") if "columns" in axes else ("sizes",) if "sizes" in axes else ("N", "C", "spatial")
    sizes: list[int] = []
    for name in names:
        sizes += axes[name] if isinstance(axes[name], list) else [axes[name]]
    order = row.get("order")
    return "×".join(map(str, sizes)) + (f", {order}" if order else "")


def digits() -> str:
    """What the demo reached, and where its time went."""
    run = json.loads((RESULTS / "digits.json").read_text())
    rows = [
        [f"`{each['operator']}`", str(each["calls"]), f"{each['total_ms'] / 1e3:.2f}", f"{each['mean_us']:.0f}"]
        for each in run["operators"]
    ]
    epochs, seconds = run["config"]["epochs"], run["seconds"]
    reached = f"{run['accuracy']:.2%} of the held-out digits right after {epochs} epochs, in {seconds:.0f} s:"
    return f"{reached}\n\n{_table(('operator', 'calls', 'seconds', 'microseconds a call'), rows)}"


def _origin(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"Measured {machine['date']} on {machine['processor']}, {machine['cores']} cores, "
        f"Python {machine['python']}, {packages}, with `tools/{machine['commands'][0]}`."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell or '-' for cell in line)} |" for line in lines)


PARTS: dict[str, Callable[[], str]] = {"operators": operators, "h200": h200, "cpu": cpu, "digits": digits}

if __name__ == "__main__":
    sys.exit(main())
