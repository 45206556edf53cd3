#!/usr/bin/env python3
"""Measure cold starts in fresh processes: each operator, and all gradients that a network's backward pass asks for.

    tools/cold_start.py --json cold.json                   on a GPU: every operator, ResNet-50, ConvNeXt-T, bfloat16
    tools/cold_start.py ConvGrad ResNet-50 --batch 32      some of them, with smaller batches
    tools/cold_start.py LayerNormalizationGrad --provider cpu --type float32

Five processes, one after another: "empty" begins with an empty cache, "second" with the cache that "empty" left, both
without packs; "pack" begins with an empty cache and a pack, --pack or those that are installed here. In these three
calls search, by search="exhaustive". "background" begins as "pack" does, but its searches wait, as they do by default,
for gradkern.tune(), which is called after the first step; "torch" computes the same gradients by PyTorch's own
operators, with cudnn.benchmark. Each loads its libraries and makes its arrays, then calls every gradient once (the
first step) and once more (the next step). What the libraries take to load is told apart.
The exit code is 1 where a process of gradkern's failed; what PyTorch refuses is told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

from networks import NETWORKS
from results_file import SCHEMA, machine, write
from rich.console import Console
from rich.table import Table

import gradkern

PROCESSES = ("empty", "second", "pack", "background", "torch")
WITH_PACKS = ("pack", "background")
Row = dict[str, Any]


def main() -> int:
    """Measure what the command line asks for, print a table, and write JSON where asked."""
    options = _options()
    rows: list[Row] = []
    for work in options.work:
        with tempfile.TemporaryDirectory(prefix="gradkern-cold-") as folder:
            for process in options.processes:
                cache = Path(folder) / (process if process in WITH_PACKS else "without packs")
                if process in WITH_PACKS:
                    _take_packs(options.packs, cache)
                rows += _in_process(work, process, cache, options)
    _print(rows)
    if options.json:
        results = {"schema": SCHEMA, "machine": machine(options.provider == "cuda"), "rows": rows}
        write(options.json, json.dumps(results, indent=1).encode())
    return 1 if any("failed" in row and row["process"] != "torch" for row in rows) else 0


def _options() -> argparse.Namespace:
    every = [*gradkern.operators(), *NETWORKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", metavar="WORK", help="operators and networks; by default all")
    parser.add_argument("--type", default="bfloat16", help="type of the data (%(default)s)")
    parser.add_argument("--batch", type=int, help="images of a network's batch, in place of the usual number")
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda", help="where to compute (%(default)s)")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="the pack, in place of those that are installed here")
    parser.add_argument("--processes", default=",".join(PROCESSES), help="with commas between (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    options.work = options.work or every
    for name in options.work:
        if name not in every:
            parser.error(f"unknown {name!r}; known are {', '.join(every)}")
    options.processes = options.processes.split(",")
    for name in options.processes:
        if name not in PROCESSES:
            parser.error(f"unknown process {name!r}; known are {', '.join(PROCESSES)}")
    options.packs = _packs(options) if {*WITH_PACKS} & {*options.processes} else []
    if not options.packs:
        options.processes = [name for name in options.processes if name not in WITH_PACKS]
    return options


def _packs(options: argparse.Namespace) -> list[Path]:
    """What the processes with packs have."""
    if options.provider != "cuda":
        return []
    packs: Any = import_module("gradkern.cuda.packs")
    found = [options.pack] if options.pack else [each.path for each in packs.found() if each.fault is None]
    if not found:
        print("no process with a pack: there is none; `gradkern pack build` makes one", file=sys.stderr)
    return found


def _take_packs(packs: list[Path], cache: Path) -> None:
    """Install packs into a cache of their own. A pack that does not fit ends the measurement, and says why."""
    for pack in packs:
        command = [sys.executable, "-m", "gradkern", "pack", "install", str(pack)]
        environment = {**os.environ, "GRADKERN_CACHE_DIR": str(cache), "PYTHONPATH": _with_root()}
        code = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode
        if code:
            sys.exit(code)


def _with_root() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def _in_process(work: str, process: str, cache: Path, options: argparse.Namespace) -> Iterator[Row]:
    """The row of a fresh process, which runs this file; none where PyTorch has no such gradient."""
    asked = {
        "work": work,
        "process": process,
        "type": options.type,
        "batch": options.batch,
        "provider": options.provider,
    }
    command = [sys.executable, str(ROOT / "tools" / "first_steps.py"), json.dumps(asked)]
    environment = {**os.environ, "GRADKERN_CACHE_DIR": str(cache)}
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    row: Row = {"work": work, "process": process, "type": options.type, "process_seconds": seconds}
    if done.returncode:
        row["failed"] = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        print(f"{work}, {process}: {row['failed']}", file=sys.stderr)
    else:
        measured = json.loads(done.stdout.splitlines()[-1])
        if not measured:
            return
        row |= measured
        print(f"{work}, {process}: first step {row['first_seconds']:.2f} s", file=sys.stderr)
    yield row


def _print(rows: list[Row]) -> None:
    phases = ("framework", "import", "libraries", "first", "tune", "next")
    table = Table("work", "process", "gradients", *(f"{phase} s" for phase in phases), "slowest")
    for row in rows:
        if "failed" in row:
            table.add_row(row["work"], row["process"], *["-"] * (1 + len(phases)), row["failed"])
            continue
        slowest = max(row["calls"], key=lambda call: call["seconds"])
        times = (row.get(f"{phase}_seconds") for phase in phases)
        seconds = ("-" if each is None else f"{each:.2f}" for each in times)
        text = f"{slowest['seconds']:.2f} s: {slowest['what']}"
        table.add_row(row["work"], row["process"], str(len(row["calls"])), *seconds, text)
    Console(width=None if sys.stdout.isatty() else 220).print(table)


if __name__ == "__main__":
    sys.exit(main())
