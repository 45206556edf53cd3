#!/usr/bin/env python3
"""Training steps of whole models, with and without gradkern.torch: a table, and JSON.

    tools/train_bench.py --json train.json
    tools/train_bench.py ResNet-50 --columns eager,enable
    tools/train_bench.py ResNet-50 --columns eager,enable --batch 8
    tools/train_bench.py --tiny              # on a CPU, to try it out

A step is a forward and a backward pass. Every cell is a process of its own, so that no column warms another's caches;
--cold runs each twice, first with empty caches. A cell that fails, or takes longer than --limit, says why in its place.
--top N prints a step's N kernels that take the most; the JSON has all.
A column is eager, or some of these with + between: enable, that is gradkern.torch.enable() and tune(repeats=5);
accelerate, gradkern.torch.accelerate(); compile, torch.compile; gradkern, torch.compile with gradkern's backend, and
tune(); liger, Liger's layers in place of PyTorch's; graph, the step captured in a CUDA graph and replayed. "step" is
one alone, synchronised before and after; "in a row" is one of ten with nothing between, as a training loop has them
that reads its loss now and then; "kernels" is the time that the kernels of a step take, by torch.profiler: what the
step would take if the host were never late.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import results_file
from markdown_table import table

COLUMNS = (
    *("eager", "enable", "compile", "compile+enable", "gradkern", "gradkern+enable", "liger", "liger+compile"),
    *("graph", "graph+enable", "graph+compile", "gradkern+graph", "gradkern+enable+graph"),
)
IN_A_ROW = 10
PARTS = ("enable", "accelerate", "compile", "gradkern", "liger", "graph")
_MARK = "train_bench: "
Row = dict[str, Any]


def measured(name: str, column: str, tiny: bool, seconds: float, fusions: Any = None, batch: int | None = None) -> Row:
    """One cell, in this process. Times in milliseconds: of the forward pass, of a step alone and of one in a row, of
    the host for a step, of the first step, of its kernels; memory in MiB, PyTorch's at its peak and gradkern's scratch.
    """
    import torch  # pyright: ignore[reportMissingImports]
    from torch.nn import functional  # pyright: ignore[reportMissingImports]
    from train_models import CASES

    case = CASES[tiny][name]
    if batch is not None:
        case = replace(case, shape=(batch, *case.shape[1:]))
    device = "cpu" if tiny else "cuda"
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    conv: Any = torch.backends.cudnn.conv  # pyright: ignore[reportAttributeAccessIssue]
    conv.fp32_precision = "ieee" if case.precision == "f32" else "tf32"
    model: Any = case.model().to(device)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    model = model.to(dtype)
    if case.last:
        model = model.to(memory_format=torch.channels_last)
    if case.words:
        x = torch.randint(model.words.num_embeddings, case.shape, device=device)
        target = torch.randint(case.classes or 1, case.shape, device=device)
    else:
        x = torch.randn(case.shape, device=device, dtype=dtype)
        x = x.to(memory_format=torch.channels_last) if case.last else x
        spatial = case.shape[2:] if len(case.shape) == 5 else ()
        target = torch.randint(case.classes, (case.shape[0], *spatial), device=device)
    parts = column.split("+")
    if "accelerate" in parts:
        from gradkern.torch import accelerate

        accelerate(model)
    if "liger" in parts:
        from train_liger import swap

        model = swap(model)
    run: Callable[..., Any] = model
    if "compile" in parts:
        run = torch.compile(model)
    elif "gradkern" in parts:
        import gradkern.torch

        chosen: Any = {"gradkern": True} if tiny else None if fusions is None else {"gradkern": fusions}
        run = torch.compile(model, backend="gradkern", options=chosen)
    synchronize = (lambda: None) if tiny else torch.cuda.synchronize

    def forward() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=case.precision == "autocast"):
            y = run(x)
        if not case.classes:
            return y
        y = y.float()
        return (
            functional.cross_entropy(y.flatten(0, 1), target.flatten())
            if case.words
            else functional.cross_entropy(y, target)
        )

    gradient: list[Any] = [None]  # of a loss, 1

    def step() -> Any:
        for each in model.parameters():
            each.grad = None
        y = forward()
        if y.dim() and gradient[0] is None:
            gradient[0] = torch.randn_like(y)
        y.backward(gradient[0])
        return y

    def in_a_row() -> None:
        for _ in range(IN_A_ROW):
            whole()

    synchronize()
    start = time.perf_counter()
    report = None
    if "enable" in parts or "gradkern" in parts:
        import gradkern.torch

        if "enable" in parts:
            gradkern.torch.enable(devices=device, min_bytes=0 if tiny else None)
        gradkern.torch.tune(step, repeats=5 if "enable" in parts and not tiny else 0)
        report = gradkern.torch.report
    elif "accelerate" in parts:
        import gradkern

        with gradkern.tune():
            step()
    loss = float(step().float().mean())
    first = time.perf_counter() - start
    for _ in range(2 if tiny else 10):
        step()
    whole = _graphed(step) if "graph" in parts else step
    if not tiny:
        torch.cuda.reset_peak_memory_stats()
    host: list[float] = []
    steps, forwards = _times(whole, synchronize, seconds, host), _times(forward, synchronize, seconds / 3)
    several = _times(in_a_row, synchronize, seconds)
    by_kernel = [] if tiny else _kernels(whole)
    row: Row = {
        "model": _named(name, batch),
        "column": column,
        "loss": loss,
        "forward": forwards,
        "step": steps,
        "in_a_row": several / IN_A_ROW,
        "host": statistics.median(host) * 1e3,
        "first": first * 1e3,
        "kernels": None if tiny else sum(us for _, _, us in by_kernel) / 1e3,
        "by_kernel": by_kernel,
        "memory": None if tiny else (torch.cuda.max_memory_allocated() + _scratch_bytes()) / 2**20,
        "device": "CPU" if tiny else torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    if report is not None:
        found = report()
        fused = sum(not each.reason for each in found.compiled)
        row |= {"taken": found.taken, "declined": found.declined, "fused": fused, "report": str(found)}
    return row


def _scratch_bytes() -> int:
    scratch = sys.modules.get("gradkern.cuda.scratch")
    return 0 if scratch is None else scratch.held_bytes()


def _graphed(step: Callable[[], Any]) -> Callable[[], Any]:
    """The step as a CUDA graph, captured after three steps on a stream of their own, as PyTorch wants it."""
    import torch  # pyright: ignore[reportMissingImports]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _kernels(step: Callable[[], Any], steps: int = 5) -> list[tuple[str, float, float]]:
    """The kernels of one step, copies and fills among them: name, how many, and the microseconds that they take, those
    that take the most first.
    """
    import torch  # pyright: ignore[reportMissingImports]
    from torch.profiler import ProfilerActivity, profile  # pyright: ignore[reportMissingImports]

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    found = [
        (each.key, each.count / steps, each.self_device_time_total / steps)
        for each in profiled.key_averages()
        if each.self_device_time_total
    ]
    return sorted(found, key=lambda each: -each[2])


def _times(
    call: Callable[[], Any], synchronize: Callable[[], Any], seconds: float, host: list[float] | None = None
) -> float:
    """The median time of a call in milliseconds; into `host`, how long the host took to enqueue it."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        synchronize()
        start = time.perf_counter()
        call()
        enqueued = time.perf_counter()
        synchronize()
        times.append(time.perf_counter() - start)
        if host is not None:
            host.append(enqueued - start)
    return statistics.median(times) * 1e3


def in_a_process(name: str, column: str, args: argparse.Namespace, caches: str | None) -> Row:
    """One cell, in a process of its own; `error` where it failed. caches: a folder for all of them."""
    environment = dict(os.environ)
    if caches is not None:
        environment |= {"GRADKERN_CACHE_DIR": f"{caches}/gradkern", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
    command = [sys.executable, __file__, name, "--columns", column, "--seconds", str(args.seconds), "--here"]
    command += ["--tiny"] if args.tiny else []
    command += ["--batch", str(args.batch)] if args.batch is not None else []
    command += ["--fusions", json.dumps(args.fusions)] if args.fusions is not None else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=args.limit)
    except subprocess.TimeoutExpired:
        return {"model": _named(name, args.batch), "column": column, "error": f"longer than {args.limit:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return json.loads(line.removeprefix(_MARK))
    words = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()
    told = [line for line in words if re.match(r"[\w.]*(Error|Exception)\b", line)]  # CUDA's have advice behind them
    return {"model": _named(name, args.batch), "column": column, "error": (told or words)[-1]}


def _named(name: str, batch: int | None) -> str:
    return name if batch is None else f"{name}, batch {batch}"


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
        calls = row.get("taken", 0) + row.get("declined", 0)
        parts = [f"{row['taken']} of {calls}" if calls else "", f"{row['fused']} fused" if row.get("fused") else ""]
        taken = ", ".join(filter(None, parts))
        lines.append([row["model"], row["column"], *numbers, taken, *([row["commit"]] if "commit" in row else [])])
    return table(heads, lines)


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1e3


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="by default all")
    parser.add_argument("--columns", default=",".join(COLUMNS), help=f"with commas between ({','.join(COLUMNS)})")
    parser.add_argument("--seconds", type=float, default=3.0, help="for the steps of one cell")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a cell may take")
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
        row = measured(args.models[0], columns[0], args.tiny, args.seconds, args.fusions, args.batch)
        print(_MARK + json.dumps(row))
        return
    from train_models import CASES

    models = args.models or list(CASES[args.tiny])
    unknown = [each for each in models if each not in CASES[args.tiny]]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(CASES[args.tiny])}")
    rows: list[Row] = []
    machine = results_file.machine(not args.tiny)
    for name in models:
        for column in columns:
            with tempfile.TemporaryDirectory() as folder:
                caches = folder if args.cold else None
                cold = in_a_process(name, column, args, caches) if args.cold else {}
                row = in_a_process(name, column, args, caches)
            if "first" in cold:
                row["cold"] = cold["first"]
            rows.append(row)
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
