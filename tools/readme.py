#!/usr/bin/env python3
"""Write the generated parts of README.md and of the pages in tools/docs and tools/results.

    tools/readme.py            write them, from the registry, the stress suite and tools/results/*.json
    tools/readme.py --check    exit with 1 where a page is out of date

A part stands between <!-- begin NAME --> and <!-- end NAME -->.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

from bench_rows import Row
from conv_tables import conv
from distributed_tables import distributed
from markdown_table import table
from ort_operators import onnx_operators
from result_tables import (
    cold,
    compiled_calls,
    cpu,
    digits,
    forward,
    gains,
    h100,
    h200,
    measured,
    others,
    overrides,
    train,
)
from sweep_tables import sweep

import gradkern


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where something would change")
    options = parser.parse_args()
    old: list[str] = []
    for page, parts in PAGES.items():
        path = ROOT / page
        before = path.read_text(encoding="utf-8")
        after = filled(page, before, parts)
        if before != after:
            old.append(page)
            if not options.check:
                path.write_text(after, encoding="utf-8")
    if options.check and old:
        print(f"{' and '.join(old)}: out of date; run tools/readme.py", file=sys.stderr)
        return 1
    return 0


def filled(page: str, text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """The text of a page with each of these parts made anew; a part that is empty says why."""
    for name, make in parts.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"{page} has no part <!-- begin {name} -->")
        lines = f"{make() or NOT_MEASURED}\n".replace("\\", r"\\")
        text = pattern.sub(rf"\g<1>{lines}\g<2>", text)
    return text


NOT_MEASURED = "Not measured for the present version."


def families() -> str:
    """A line for each family, with as many of its operators as fit, gradients first."""
    names: dict[str, list[str]] = {}
    for name, operator in gradkern.operators().items():
        names.setdefault(operator.family.replace("_", " "), []).append(name)
    return "\n".join(
        f"- {family}: {_fitting(sorted(each, key=_gradient_first), family)}" for family, each in sorted(names.items())
    )


def _gradient_first(name: str) -> tuple[bool, int]:
    return "Grad" not in name, len(name)


def _fitting(names: list[str], family: str) -> str:
    line = ", ".join(f"`{each}`" for each in names)
    shown = len(names)
    while len(line) > 116 - len(family):
        shown -= 1
        line = ", ".join([*(f"`{each}`" for each in names[:shown]), f"{len(names) - shown} more"])
    return line


def operators() -> str:
    """The table of operators; what all of them share is said once, below it."""
    head = ["operator", "inputs", "outputs", "attributes", "in place", "types of the data", "providers"]
    rows: list[list[str]] = []
    for name, operator in gradkern.operators().items():
        outputs = (f"{each.name}" if each.default else f"{each.name} (on request)" for each in operator.outputs)
        in_place = (f"{target} over {source}" for source, target in sorted(operator.in_place_pairs))
        inputs = (
            each.name + " (host)" * (each.memory != "device") + ", ..." * each.variadic for each in operator.inputs
        )
        cells = (inputs, outputs, operator.attributes, in_place, operator.data_types, operator.providers)
        rows.append([f"`{name}`", *map(", ".join, cells)])
    columns = list(zip(head, *rows, strict=True))
    shared = [column for column in columns if len({*column[1:]}) == 1]
    head, *rows = (list(row) for row in zip(*(each for each in columns if each not in shared), strict=True))
    same = "; ".join(f"{column[0]} {column[1]}" for column in shared)
    return "\n\n".join([table(head, rows), *([f"The same for all: {same}."] if same else [])])


def stress() -> str:
    """What one run of the stress suite tries, by the numbers that stand in it."""
    tree = ast.parse((ROOT / "tests" / "stress" / "test_stress.py").read_text(encoding="utf-8"))
    counts = {
        name.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for name in node.targets
        if isinstance(name, ast.Name) and isinstance(node.value.value, int)
    }
    text = (
        "A stress suite (`tools/test --long tests/stress`) tries in every run, with new random numbers: "
        "{DAMAGED_FILES:,} damaged cache files, none of which may be loaded, and {DAMAGED_CACHES} processes on damaged "
        "caches; {KILLS} kills and {INTERRUPTS} interrupts at random moments, {FORKS} forks while another thread "
        "compiles; read-only, foreign and strange folders; {THREADS} threads whose plans are forgotten under them; "
        "{CALLS:,} calls after which memory has not grown; and {HOSTILE_CALLS:,} hostile calls, each computed or "
        "refused with a GradkernError."
    )
    return textwrap.fill(text.format(**counts), 120)


def summary() -> str:
    """One row for each kind of gradient: the median and the least over all that was measured on a GPU."""
    bench, layers = (measured(file)["rows"] for file in ("h200.json", "conv.json"))
    single = [row for row in layers if row["outputs"] in ("dX", "dW")]
    depthwise = [row for row in single if row["layer"].endswith("depthwise")]
    kinds = {
        "layer norms": [row for row in bench if "LayerNormalization" in row["operator"]],
        "bias-GELU": [row for row in bench if "Gelu" in row["operator"]],
        "batch norm": [row for row in bench if row["operator"] == "BatchNormalizationGrad"],
        "batch norm, DirectML's": [row for row in bench if row["operator"].startswith("Dml")],
        "convolution": [row for row in single if row not in depthwise],
        "convolution, depthwise": depthwise,
    }
    rows: list[list[str]] = []
    for kind, each in ((kind, each) for kind, each in kinds.items() if each):
        shares = [row["share_of_limit"] for row in each if "share_of_limit" in row]
        peers = ([_over_gradkern(row, peer) for row in each] for peer in ("torch", "compile"))
        rows.append([kind, str(len(each)), *map(_middle, (shares, *([r for r in ratios if r] for ratios in peers)))])
    return table(("gradient", "measured", "share of the limit", "PyTorch", "torch.compile"), rows) if rows else ""


def _over_gradkern(row: Row, peer: str) -> float | None:
    """A peer's time over gradkern's, from a row of either benchmark."""
    time = row["peers"].get(peer) if "peers" in row else row["torch_microseconds"] if peer == "torch" else None
    return time / row["microseconds"] if time else None


def _middle(numbers: Sequence[float]) -> str:
    return f"{statistics.median(numbers):.2f} ({min(numbers):.2f})" if numbers else ""


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"gains": gains, "families": families},
    "tools/docs/operators.md": {"operators": operators},
    "tools/docs/onnx.md": {"onnx_operators": onnx_operators},
    "tools/docs/caches.md": {"stress": stress},
    "tools/results/README.md": {"summary": summary},
    "tools/results/training.md": {"train": train},
    "tools/results/norms.md": {"h200": h200, "h100": h100, "forward": forward},
    "tools/results/other-operators.md": {"others": others},
    "tools/results/random-sizes.md": {"sweep": sweep},
    "tools/results/convolutions.md": {"conv": conv},
    "tools/results/several-gpus.md": {"distributed": distributed},
    "tools/results/host.md": {"overrides": overrides, "compiled_calls": compiled_calls},
    "tools/results/cold-start.md": {"cold": cold},
    "tools/results/cpu.md": {"cpu": cpu},
    "tools/results/demo.md": {"digits": digits},
}

if __name__ == "__main__":
    sys.exit(main())
