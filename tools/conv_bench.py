#!/usr/bin/env python3
"""Time ConvGrad on a GPU against PyTorch with cudnn.benchmark, layer by layer of known networks, in one run.

    tools/conv_bench.py --json conv.json                     all layers, settings and gradients
    tools/conv_bench.py --json conv.json --resume            those that are not in the file yet
    tools/conv_bench.py --networks ResNet-50,WaveNet --settings tf32,float64 --outputs dX --seconds 120

Settings: float16 and bfloat16 are channels-last (1-D: as it is); bfloat16-nchw, tf32 and float32 (without TF32) and
float64 are NCHW.
A row is the median of repeated runs with a cold L2, gradkern's and PyTorch's in turns. How far the two results are
apart is noted, so that nobody is fast by being wrong. The file is written after every row; --seconds starts no row
after that time.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import torch  # pyright: ignore[reportMissingImports]
from conv_layers import LAYERS, NETWORKS, Layer
from gpu_timing import device_times, host_seconds, machine
from needs import require_gpu
from peers import torch_peer
from results_file import write
from rich.console import Console
from rich.table import Table

import gradkern

SCHEMA = 1
SETTINGS = ("float16", "bfloat16", "bfloat16-nchw", "tf32", "float32", "float64")
OUTPUTS = ("dX", "dW", "dX,dW,dB")
_NCHW = "-nchw"
MOST_FLOAT64_MULTIPLICATIONS = 1e10  # of one gradient: PyTorch takes 10 ms and more
Row = dict[str, Any]


def main() -> int:
    """Time what the command line asks for; print a table, and keep JSON."""
    options = _options()
    start = time.monotonic()
    rows: list[Row] = json.loads(options.json.read_text())["rows"] if options.resume and options.json.exists() else []
    done = {_key(row["network"], row["layer"], row["setting"], row["outputs"]) for row in rows}
    torch.backends.cudnn.benchmark = True
    for layer, setting in _work(options):
        left = [outputs for outputs in options.outputs if _key(layer.network, layer.name, setting, outputs) not in done]
        if left and time.monotonic() - start > options.seconds:
            print("no time left; run again with --resume", file=sys.stderr)
            break
        rows += _timed(layer, setting, left, options) if left else []
        if left and options.json:
            document = {"schema": SCHEMA, "machine": _machine(), "rows": rows}
            write(options.json, json.dumps(document, indent=1).encode())
    _print(rows)
    if options.plot and rows:
        import conv_plot

        write(options.plot, conv_plot.drawn(rows, options.plot.suffix.lstrip(".") or "png"))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="with commas between (%(default)s)")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="with commas between (%(default)s)")
    parser.add_argument("--outputs", action="append", help=f"may be repeated; by default each of {OUTPUTS}")
    parser.add_argument("--layers", help="only layers with this in their name")
    parser.add_argument("--seconds", type=float, default=600, help="start no row after this time (%(default)s)")
    parser.add_argument("--row-seconds", type=float, default=0.05, help="time to spend on a row (%(default)s)")
    parser.add_argument("--host", action="store_true", help="time the host's part of a call, too")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--plot", type=Path, help="write a plot of all rows here, as PNG or SVG")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    options = parser.parse_args()
    for name, known in (("networks", NETWORKS), ("settings", SETTINGS)):
        given = getattr(options, name).split(",")
        unknown = [each for each in given if each not in known]
        if unknown:
            parser.error(f"unknown {name} {', '.join(unknown)}; known are {', '.join(known)}")
        setattr(options, name, given)
    options.outputs = options.outputs or list(OUTPUTS)
    require_gpu(parser)
    return options


def _work(options: argparse.Namespace) -> Iterator[tuple[Layer, str]]:
    for layer in LAYERS:
        if layer.network not in options.networks or (options.layers and options.layers not in layer.name):
            continue
        for setting in options.settings:
            if setting != "float64" or _multiplications(layer) <= MOST_FLOAT64_MULTIPLICATIONS:
                yield layer, setting


def _timed(layer: Layer, setting: str, wanted: Sequence[str], options: argparse.Namespace) -> Iterator[Row]:
    """A row for each set of outputs."""
    dtype = getattr(torch, "float32" if setting == "tf32" else setting.removesuffix(_NCHW))
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = setting == "tf32"
    random = torch.Generator("cuda").manual_seed(0)
    arrays = {
        name: torch.randn(shape, device="cuda", generator=random).to(dtype) for name, shape in layer.shapes.items()
    }
    rank = len(layer.spatial)
    if dtype.itemsize == 2 and rank > 1 and not setting.endswith(_NCHW):
        order = torch.channels_last if rank == 2 else torch.channels_last_3d
        arrays = {name: array.contiguous(memory_format=order) for name, array in arrays.items()}
    for each in wanted:
        outputs = tuple(each.split(","))
        arguments: dict[str, Any] = {
            **layer.attributes,
            "outputs": outputs,
            "policy": {"search": "exhaustive", "allow_tf32": setting == "tf32"},
        }
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of candidates with wrong results: the row says how many
            plan = gradkern.prepare("ConvGrad", **arrays, **arguments)
        planned = time.perf_counter() - began
        peer = torch_peer("ConvGrad", arrays, layer.attributes, outputs)
        if peer is None:
            raise RuntimeError("there is no peer for ConvGrad")
        calls = {"gradkern": lambda run=arguments: gradkern.run("ConvGrad", **arrays, **run), "torch": peer}
        apart = _apart(calls["gradkern"](), calls["torch"](), outputs)
        times = device_times(calls, options.row_seconds)
        ours, theirs = (statistics.median(times[name]) for name in ("gradkern", "torch"))
        results = [found for found in getattr(plan.plan, "results", {}).values() if found]
        row: Row = {
            "network": layer.network,
            "layer": layer.name,
            "batch": layer.batch,
            "setting": setting,
            "outputs": each,
            "kernel": plan.kernel,
            "workspace": plan.scratch,
            "plan_seconds": planned,
            "wrong": sum(len(found.wrong) for found in results),
            "not_accepted": {each.name: each.reason for found in results for each in found.rejected if each.seconds},
            "microseconds": ours * 1e6,
            "torch_microseconds": theirs * 1e6,
            "torch_over_gradkern": theirs / ours,
            "apart": apart,
        }
        if options.host:
            row["host_microseconds"] = {name: host_seconds(call, 60) * 1e6 for name, call in calls.items()}
        print(f"{layer.network} {layer.name} {setting} {each}: {row['torch_over_gradkern']:.2f}", file=sys.stderr)
        yield row


def _apart(ours: Any, theirs: Iterable[Any], outputs: tuple[str, ...]) -> float:
    """The largest of ||ours - theirs|| / ||theirs|| over the outputs."""
    pairs = zip((getattr(ours, name) for name in outputs), (each for each in theirs if each is not None), strict=True)
    return max(((a.double() - b.double()).norm() / b.double().norm()).item() for a, b in pairs)


def _multiplications(layer: Layer) -> int:
    return layer.batch * math.prod(layer.out) * math.prod(layer.shapes["W"])


def _key(network: str, layer: str, setting: str, outputs: str) -> tuple[str, ...]:
    return network, layer, setting, outputs


def _print(rows: list[Row]) -> None:
    table = Table("network", "layer", "setting", "outputs", "us", "torch us", "torch / gradkern", "kernel")
    for row in rows:
        microseconds = (f"{row[key]:.1f}" for key in ("microseconds", "torch_microseconds"))
        ratio = f"{row['torch_over_gradkern']:.2f}"
        table.add_row(row["network"], row["layer"], row["setting"], row["outputs"], *microseconds, ratio, row["kernel"])
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(table)
    for title, chosen in _groups(rows).items():
        ratios = [row["torch_over_gradkern"] for row in chosen]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            console.print(f"{title}: {mean:.2f} in the geometric mean of {len(ratios)}, least {min(ratios):.2f}")


def _groups(rows: list[Row]) -> dict[str, list[Row]]:
    """The groups of rows that the project has aims for."""
    depthwise = [row for row in rows if row["layer"].endswith("depthwise")]
    dense = [row for row in rows if row not in depthwise]
    return {
        "dense, 16 bits": [row for row in dense if row["setting"] in ("float16", "bfloat16")],
        "dense, 16 bits, NCHW": [row for row in dense if row["setting"].endswith(_NCHW)],
        "dense, float32 in TF32": [row for row in dense if row["setting"] == "tf32"],
        "float32 without TF32 and float64": [row for row in rows if row["setting"] in ("float32", "float64")],
        "depthwise, one gradient": [row for row in depthwise if "," not in row["outputs"]],
        "depthwise, all three": [row for row in depthwise if "," in row["outputs"]],
    }


def _machine() -> dict[str, Any]:
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "gradkern": gradkern.__version__}
    return {**machine(), "versions": versions, "date": time.strftime("%Y-%m-%d")}


if __name__ == "__main__":
    sys.exit(main())
