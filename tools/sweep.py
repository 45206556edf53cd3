#!/usr/bin/env python3
"""Measure sizes, types and layouts drawn at random, so that no size is one that somebody tuned for.

    tools/sweep.py --seed 7 --count 50 --json sweep.json           50 of each kind in each range, on a GPU
    tools/sweep.py --seed 7 --count 50 --json sweep.json --resume  those that are not in the file yet
    tools/sweep.py --kinds norm,conv --ranges 100-800 --peers torch,compile,liger
    tools/sweep.py --kinds norm --ranges 1-4 --count 3 --provider cpu

Ranges are in megabytes, read and written together. The limit is torch.add on as many bytes with the L2 cache in the
same state: cold, or with --warm as the run before left it. A batch norm through the statistics of the batch is given
its share of 0.6 of the limit, which is what reading the inputs twice allows. Convolutions are judged by their peers.
The file is written after every row; --seconds starts no row after that time. The exit code is 1 where a call failed.
What all of it will need is compiled first, on all cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from bench_rows import Row
from draws import KINDS, Draw, drawn
from measure import measured
from memory_orders import strides_in_order
from needs import require_gpu
from peers import PEERS
from results_file import SCHEMA, machine, write
from rich.console import Console
from rich.table import Table
from sweep_tables import HEAD, lines, worst

import gradkern
from gradkern.arrays.kind import dtype_of
from gradkern.cli.sizes import Wanted
from gradkern.contract.schema import shape_of
from gradkern.dispatch.planner import compile_ahead
from gradkern.system.providers import PROVIDERS

WORST = 10


def main() -> int:
    """Measure what the command line asks for, print the summary and the worst, and keep JSON."""
    options = _options()
    begun = time.monotonic()
    rows: list[Row] = json.loads(options.json.read_text())["rows"] if options.resume and options.json.exists() else []
    done = {(row["kind"], row["range"], row["seed"], row["number"]) for row in rows}
    draws = [each for each in _draws(options) if (each[1].kind, each[0], options.seed, each[2]) not in done]
    _compile_ahead([draw for _, draw, _ in draws], options.provider)
    for range_, draw, number in draws:
        if time.monotonic() - begun > options.seconds:
            print("no time left; run again with --resume", file=sys.stderr)
            break
        place = {"kind": draw.kind, "range": range_, "seed": options.seed, "number": number, "warm": options.warm}
        rows.append({**place, **_measured(draw, options)})
        if options.json:
            results = {"schema": SCHEMA, "machine": machine(options.provider == "cuda"), "rows": rows}
            write(options.json, json.dumps(results, indent=1).encode())
    _print(rows)
    return 1 if any("failed" in row for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other sizes (%(default)s)")
    parser.add_argument("--count", type=int, default=30, help="draws of each kind in each range (%(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas between (%(default)s)")
    parser.add_argument("--ranges", default="100-800,1-50", help="megabytes, with commas between (%(default)s)")
    parser.add_argument("--peers", default="torch", help=f"of {', '.join(PEERS)}, with commas between (%(default)s)")
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda", help="where to compute (%(default)s)")
    parser.add_argument("--warm", action="store_true", help="leave the L2 cache as the run before has left it")
    parser.add_argument("--row-seconds", type=float, default=0.1, help="time to spend on a row (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no row after this time")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume goes with --json")
    for name, known in (("kinds", KINDS), ("peers", PEERS)):
        given = [each for each in getattr(options, name).split(",") if each]
        unknown = [each for each in given if each not in known]
        if unknown:
            parser.error(f"unknown {name} {', '.join(unknown)}; known are {', '.join(known)}")
        setattr(options, name, given)
    try:
        options.ranges = {each: tuple(map(float, each.split("-"))) for each in options.ranges.split(",")}
        if not all(0 < least <= most for least, most in options.ranges.values()):
            raise ValueError
    except ValueError:
        parser.error("--ranges are numbers of megabytes such as 100-800,1-50")
    if options.provider == "cuda":
        require_gpu(parser, "--provider cpu measures the CPU")
    return options


def _draws(options: argparse.Namespace) -> Iterator[tuple[str, Draw, int]]:
    """Kinds and ranges in turns, so that a run that is cut short has seen something of each."""
    for number in range(options.count):
        for range_, (least, most) in options.ranges.items():
            for kind in options.kinds:
                yield range_, drawn(kind, options.seed, number, least * 1e6, most * 1e6), number


def _compile_ahead(draws: list[Draw], provider: str) -> None:
    wanted = [_wanted(each) for each in draws]
    compile_ahead((provider, PROVIDERS[provider].first_device, partial(each.dry_plan, provider)) for each in wanted)


def _wanted(draw: Draw) -> Wanted:
    """The call of a draw, described."""
    operator = gradkern.operators()[draw.operator]
    inputs = {
        each.name: (shape_of(each.shape, draw.example.axes), dtype_of(draw.types[each.type]).itemsize)
        for each in operator.inputs_of(draw.example.axes)
    }
    strides = {name: strides_in_order(shape, item, draw.order) for name, (shape, item) in inputs.items()}
    return Wanted(draw.operator, operator, draw.example, draw.types, draw.outputs, strides=strides)


def _measured(draw: Draw, options: argparse.Namespace) -> Row:
    """The row of a draw; what went wrong in place of times where it did, as the others are to be measured."""
    arguments = (draw.operator, draw.types, draw.example, draw.outputs, draw.order)
    how: dict[str, Any] = {"provider": options.provider, "peers": options.peers, "seconds": options.row_seconds}
    try:
        with gradkern.policy(search="exhaustive"):  # what a call gets once `tune` has searched for it
            row = measured(*arguments, **how, cold=not options.warm, host=False)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        print(f"{draw.operator} {dict(draw.example.axes)} {dict(draw.types)} {draw.order}: {text}", file=sys.stderr)
        return {"operator": draw.operator, "types": dict(draw.types), "axes": dict(draw.example.axes), "failed": text}
    if "share_of_limit" in row:
        row["share_of_floor"] = row["share_of_limit"] / KINDS[draw.kind].floor
    return row


def _print(rows: list[Row]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table(*HEAD)
    for line in lines(rows):
        table.add_row(*line)
    console.print(table)
    for title, chosen in worst(rows, WORST).items():
        table = Table(title, "operator", "size", "types", "us", "kernel")
        for value, row in chosen:
            types = ",".join(dict.fromkeys(row["types"].values()))
            table.add_row(
                f"{value:.3f}", row["operator"], row["size"], types, f"{row['microseconds']:.1f}", row["kernel"]
            )
        console.print(table)


if __name__ == "__main__":
    sys.exit(main())
