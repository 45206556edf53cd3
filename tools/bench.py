#!/usr/bin/env python3
"""Time gradkern's operators, and other libraries on the same work in the same run.

    tools/bench.py                          every operator, the registry's benchmark sizes, float32
    tools/bench.py LayerNormalizationGrad --types bfloat16,float32 --peers torch
    tools/bench.py ConvGrad --axes '{"N": 8, "C": 16, ...}' --attributes '{"pads": [1, 1, 1, 1]}'
    tools/bench.py --overhead               what a warm call costs beyond its kernel, on the small examples

A row is the median of repeated warm runs, gradkern's and the peers' in turns, with the distance between the
quartiles as the spread. GB/s counts the bytes that must move: inputs once, outputs once. FLOP/s counts a
convolution's multiplications and additions. On a GPU (--provider cuda) the L2 is cold and the limit is measured in the
same run: torch.add, two reads and one write, on as many bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import bench_plot
import numpy as np
from bench_rows import Row
from measure import measured
from memory_orders import ORDERS
from needs import require_gpu
from peers import PEERS
from results_file import SCHEMA, joined, machine, write
from rich.console import Console
from rich.progress import track
from rich.table import Table

import gradkern
from gradkern.cli.sizes import combinations, named
from gradkern.contract.examples import complete
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example, Operator


def main() -> int:
    """Time what the command line asks for, print a table, and write JSON and a plot where asked."""
    options = _options()
    console = Console(stderr=True)
    work = list(_work(options))
    if not work:
        print("no operator takes these types", file=sys.stderr)
        return 1
    results: dict[str, Any] = {"schema": SCHEMA, "machine": machine(options.provider == "cuda"), "rows": []}
    before = json.loads(options.json.read_text()) if options.json and options.append and options.json.exists() else None
    if before is not None:
        joined(before, results)  # refused before anything is timed
    rows: list[Row] = []
    failed = False
    try:
        with gradkern.policy(search="exhaustive"):
            for each in track(work, "timing", console=console, disable=not console.is_terminal, transient=True):
                try:
                    rows.append(_overhead(*each) if options.overhead else _timed(*each, options))
                except Exception as error:  # the others' rows are not lost
                    failed = True
                    print(f"{each[0]} {named(each[3])}: {type(error).__name__}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted: the rows measured so far follow", file=sys.stderr)
        failed = True
    if not rows:
        return 1
    _print(rows)
    if options.json:
        results["rows"] = [{**row, "commit": results["machine"]["commit"]} for row in rows]
        if before is not None:
            results = joined(before, results)
        write(options.json, json.dumps(results, indent=1).encode())
        rows = results["rows"]
    if options.plot:
        write(options.plot, bench_plot.drawn(rows, options.plot.suffix.lstrip(".") or "png"))
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="operators to time; by default all")
    parser.add_argument(
        "--types", default="float32", help="data types, or 'T=float16 T1=float32', separated by commas (%(default)s)"
    )
    parser.add_argument(
        "--axes", type=json.loads, action="append", help="a size instead of the registry's, as JSON; may be repeated"
    )
    parser.add_argument("--attributes", type=json.loads, default={}, help="its attributes, as JSON")
    parser.add_argument("--outputs", help="outputs to compute, separated by commas; by default all")
    parser.add_argument("--order", choices=ORDERS, default="C", help="memory order of the arrays (%(default)s)")
    parser.add_argument("--provider", help="provider to run on; by default that of the arrays")
    parser.add_argument("--peers", default="", help=f"libraries to time too: {', '.join(PEERS)}")
    parser.add_argument("--seconds", type=float, default=1.0, help="time to spend on a row, at least (%(default)s)")
    parser.add_argument(
        "--overhead", action="store_true", help="time warm calls on the small examples against the kernel"
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument(
        "--append", action="store_true", help="keep the other rows that file has, measured on the same machine"
    )
    parser.add_argument("--plot", type=Path, help="write a plot here, as PNG or SVG")
    options = parser.parse_args()
    known = gradkern.operators()
    for name in options.operators:
        if name not in known:
            parser.error(f"unknown operator {name!r}; known are {', '.join(known)}")
    options.peers = [name for name in options.peers.split(",") if name]
    for name in options.peers:
        if name not in PEERS:
            parser.error(f"unknown peer {name!r}; known are {', '.join(PEERS)}")
    if options.provider == "cuda":
        require_gpu(parser, "--provider cpu measures the CPU")
    return options


def _work(options: argparse.Namespace) -> Iterator[tuple[Any, Operator, Mapping[str, str], Example]]:
    for name, operator in gradkern.operators().items():
        if options.operators and name not in options.operators:
            continue
        wanted = [each.replace(" ", ",") for each in options.types.split(",")]
        for types in [row for each in wanted for row in combinations(operator, each)[:1]]:
            if options.axes:
                attributes = {key: tuple(v) if isinstance(v, list) else v for key, v in options.attributes.items()}
                for each in options.axes:
                    missing = [axis for axis in operator.axes if axis not in each]
                    if missing:
                        raise SystemExit(f"--axes: {name} needs a size of {', '.join(missing)}, too")
                    axes = {key: tuple(size) if isinstance(size, list) else size for key, size in each.items()}
                    yield name, operator, types, complete(operator, Example(axes=axes, attributes=attributes))
            else:
                for example in operator.examples if options.overhead else operator.benchmarks:
                    yield name, operator, types, example


def _timed(
    name: Any, operator: Operator, types: Mapping[str, str], example: Example, options: argparse.Namespace
) -> Row:
    outputs = [each.name for each in operator.outputs if not each.appended]
    if options.outputs:
        outputs = options.outputs.split(",")
    how = {"provider": options.provider, "peers": options.peers, "seconds": options.seconds}
    return measured(name, types, example, outputs, options.order, **how)


def _overhead(name: Any, operator: Operator, types: Mapping[str, str], example: Example) -> Row:
    """What a warm call costs beyond the plan it executes, in microseconds: medians over batches of calls."""
    arrays = inputs_of(operator, types, example, np.random.default_rng(0))
    inputs, attributes = tuple(arrays.values()), dict[str, Any](example.attributes)
    positional = inputs if all(each.memory == "device" for each in operator.inputs) else ()
    given = attributes if positional else {**arrays, **attributes}
    entry = gradkern.prepare(name, *positional, **given)
    read = (*inputs, *[given[each] for each in entry.call.scalars])
    buffers = tuple(each for each in gradkern.run(name, *positional, **given) if each is not None)
    whole = _batches(lambda: gradkern.run(name, *positional, **given))
    kernel = _batches(lambda: entry.plan(read, buffers, None))
    return {
        "operator": name,
        "types": dict(types),
        "size": named(example),
        "microseconds": whole,
        "kernel_microseconds": kernel,
        "beyond_microseconds": whole - kernel,
    }


def _batches(call: Callable[[], Any], count: int = 200, repeats: int = 15) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times) * 1e6


def _print(rows: list[Row]) -> None:
    overhead = "beyond_microseconds" in rows[0]
    peers = sorted({peer for row in rows for peer in row.get("peers", ())})
    columns = ["operator", "size", "types"]
    columns += (
        ["call us", "kernel us", "beyond us"] if overhead else ["kernel", "us", "spread", "GB/s", "GFLOP/s", "of limit"]
    )
    table = Table(*columns, *(f"{peer} us" for peer in peers), *(f"{peer} / gradkern" for peer in peers))
    for row in rows:
        cells = [row["operator"], row["size"], ",".join(dict.fromkeys(row["types"].values()))]
        if overhead:
            cells += [f"{row[key]:.1f}" for key in ("microseconds", "kernel_microseconds", "beyond_microseconds")]
        else:
            flops = row["gigaflops_per_second"]
            cells += [row["kernel"], f"{row['microseconds']:.1f}", f"{row['spread']:.0%}"]
            cells += [f"{row['gigabytes_per_second']:.1f}", f"{flops:.1f}" if flops else "-"]
            cells += [f"{row['share_of_limit']:.3f}" if "share_of_limit" in row else "-"]
        for ratio in (False, True):
            for peer in peers:
                taken = row["peers"].get(peer)
                cells.append(
                    "-" if taken is None else f"{taken / row['microseconds'] if ratio else taken:.{2 if ratio else 1}f}"
                )
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 220).print(table)


if __name__ == "__main__":
    sys.exit(main())
