#!/usr/bin/env python3
"""Training steps of whole models, with and without gradkern.torch: a table, and JSON.

    tools/train_bench.py --json train.json
    tools/train_bench.py ResNet-50 --columns eager,enable
    tools/train_bench.py ResNet-50 --columns eager,enable --batch 8
    tools/train_bench.py --tiny              # on a CPU, to try it out

A step is a forward and a backward pass. Every cell is a process of its own, so that no column warms another's caches;
--cold runs each twice, first with empty caches. A cell that fails, or takes longer than --limit, says why in its place.
--top N prints a step's N kernels that take the most; the JSON has all. With --turns N one process has all columns of a
model, and times them in N turns: where the host's speed changes by the minute, that is fair to all. Then first steps
have what those of columns before them have left in caches, and memory is not told.
A column is eager, or some of these with + between: enable, that is gradkern.torch.enable() and tune(repeats=5);
accelerate, gradkern.torch.accelerate(); compile, torch.compile; gradkern, torch.compile with gradkern's backend, and
tune(); liger, Liger's layers in place of PyTorch's; graph, the step captured in a CUDA graph and replayed. "step" is
one alone, synchronised before and after; "in a row" is one of ten with nothing between, as a training loop has them
that reads its loss now and then. Both are medians, with the quartiles behind them. "kernels" is the time that the
kernels of a step take, by torch.profiler: what the step would take if the host were never late.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import results_file
from markdown_table import table
from needs import require_gpu
from train_cell import Row, measured, named

COLUMNS = (
    *("eager", "enable", "compile", "compile+enable", "gradkern", "gradkern+enable", "liger", "liger+compile"),
    *("graph", "graph+enable", "graph+compile", "gradkern+graph", "gradkern+enable+graph"),
)
PARTS = ("enable", "accelerate", "compile", "gradkern", "liger", "graph")
_MARK = "train_bench: "


def in_a_process(name: str, columns: list[str], args: argparse.Namespace, caches: str | None = None) -> list[Row]:
    """The rows of a model's columns, from one process for all of them. caches: a folder for all that it keeps."""
    environment = dict(os.environ)
    if caches is not None:
        environment |= {"GRADKERN_CACHE_DIR": f"{caches}/gradkern", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
    command = _command(name, columns, args)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=args.limit, check=False)
        for line in done.stdout.splitlines():
            if line.startswith(_MARK):
                return json.loads(line.removeprefix(_MARK))
        words = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()
        told = [line for line in words if re.match(r"[\w.]*(Error|Exception)\b", line)]
        error = (told or words)[-1]  # behind CUDA's errors stands advice
    except subprocess.TimeoutExpired:
        error = f"longer than {args.limit:g} s"
    return [{"model": named(name, args.batch), "column": column, "error": error} for column in columns]


def _command(name: str, columns: list[str], args: argparse.Namespace) -> list[str]:
    command = [sys.executable, __file__, name, "--columns", ",".join(columns), "--here"]
    command += ["--seconds", str(args.seconds), "--turns", str(args.turns)]
    command += ["--tiny"] if args.tiny else []
    command += ["--batch", str(args.batch)] if args.batch is not None else []
    command += ["--fusions", json.dumps(args.fusions)] if args.fusions is not None else []
    return command


def shown(rows: list[Row]) -> str:
    """One line for each cell, with the step's time over eager's."""
    eager = {row["model"]: row["step"] for row in rows if row["column"] == "eager" and "step" in row}
    heads = [
        "model",
        "column",
        "forward ms",
        "step ms",
        "in a row ms",
        "eager / this",
        "kernels ms",
        "host ms",
        "first step s",
        "cold s",
        "MiB",
        "taken",
        *(["commit"] if any("commit" in row for row in rows) else []),
    ]
    lines = []
    for row in rows:
        if "error" in row:
            lines.append([row["model"], row["column"], row["error"], *[""] * (len(heads) - 3)])
            continue
        ratio = eager[row["model"]] / row["step"] if row["model"] in eager else None
        cells = [
            row["forward"],
            row["step"],
            row.get("in_a_row"),
            ratio,
            row["kernels"],
            row["host"],
            row["first"] / 1e3,
            _thousandth(row.get("cold")),
            row["memory"],
        ]
        digits = (2, 2, 2, 3, 2, 2, 1, 1, 0)
        numbers = ["" if cell is None else f"{cell:.{places}f}" for cell, places in zip(cells, digits, strict=True)]
        for place, key in ((1, "step_quartiles"), (2, "in_a_row_quartiles")):
            if key in row:
                numbers[place] += " ({:.1f} to {:.1f})".format(*row[key])
        calls = row.get("taken", 0) + row.get("declined", 0)
        parts = [f"{row['taken']} of {calls}" if calls else "", f"{row['fused']} fused" if row.get("fused") else ""]
        taken = ", ".join(filter(None, parts))
        lines.append([row["model"], row["column"], *numbers, taken, *([row["commit"]] if "commit" in row else [])])
    return table(heads, lines)


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1e3


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="by default all")
    parser.add_argument("--columns", default=",".join(COLUMNS), help=f"with commas between ({','.join(COLUMNS)})")
    parser.add_argument("--seconds", type=float, default=3.0, help="for the steps of one cell")
    parser.add_argument("--turns", type=_positive, default=1, metavar="N", help="of each of a model's columns")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a process may take")
    parser.add_argument("--cold", action="store_true", help="measure the first step with empty caches too")
    parser.add_argument("--tiny", action="store_true", help="small models on the CPU")
    parser.add_argument("--batch", type=_positive, metavar="N", help="samples of a step; by default the model's own")
    parser.add_argument("--fusions", type=json.loads, metavar="JSON", help="option gradkern of backend gradkern")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="print the N kernels that take the most")
    parser.add_argument("--json", type=Path, help="write all that was measured")
    parser.add_argument("--plot", type=Path, help="draw the steps, in the format of its name")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    columns = args.columns.split(",")
    unknown = [each for each in columns if each != "eager" and not set(each.split("+")) <= set(PARTS)]
    if unknown:
        parser.error(f"no column {unknown[0]!r}; there are eager, and with + between: {', '.join(PARTS)}")
    if args.tiny and args.columns != parser.get_default("columns") and any("graph" in each for each in columns):
        parser.error("a CPU captures no graph")
    columns = [each for each in columns if not (args.tiny and "graph" in each)]
    if args.here:
        asked = args.tiny, args.seconds, args.fusions, args.batch
        print(_MARK + json.dumps(measured(args.models[0], columns, *asked, args.turns)), flush=True)
        return
    from train_models import CASES

    models = args.models or list(CASES[args.tiny])
    unknown = [each for each in models if each not in CASES[args.tiny]]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(CASES[args.tiny])}")
    if not args.tiny:
        require_gpu(parser, "--tiny is for a CPU")
    rows: list[Row] = []
    machine = results_file.machine(not args.tiny)
    for name in models:
        for together in [columns] if args.turns > 1 else [[each] for each in columns]:
            with tempfile.TemporaryDirectory() as folder:
                caches = folder if args.cold else None
                cold = in_a_process(name, together, args, caches) if args.cold else []
                new = in_a_process(name, together, args, caches)
            for row, before in zip(new, cold, strict=False):
                if "first" in before:
                    row["cold"] = before["first"]
            rows += new
            for row in new:
                print(shown([row]).splitlines()[-1], file=sys.stderr, flush=True)
            if args.json is not None:
                results_file.write(args.json, json.dumps({"machine": machine, "rows": rows}, indent=1).encode())
    print(shown(rows))
    for row in [each for each in rows if args.top and each.get("by_kernel")]:
        lines = [[f"{us:.1f}", f"{count:g}", name[:120]] for name, count, us in row["by_kernel"][: args.top]]
        print(f"\n{row['model']}, {row['column']}\n{table(['us', 'of', 'kernel'], lines)}")
    if args.plot is not None:
        from train_plot import drawn

        results_file.write(args.plot, drawn(rows, args.plot.suffix.removeprefix(".")))


if __name__ == "__main__":
    main()
