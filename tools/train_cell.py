"""One cell of train_bench.py, in a process of its own: a model's training steps in one of the ways."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

__all__ = ["Row", "measured", "named"]

IN_A_ROW = 10
Row = dict[str, Any]


def measured(
    name: str,
    column: str,
    tiny: bool,
    seconds: float,
    fusions: Any = None,
    batch: int | None = None,
    turns: Iterable[Any] = (None,),
) -> Row:
    """One cell, in this process. Times in milliseconds: of the forward pass, of a step alone and of one in a row, of
    the host for a step, of the first step, of its kernels; memory in MiB, PyTorch's at its peak and gradkern's scratch.

    seconds   for which steps alone are timed in a turn, and then steps in a row
    turns     there is a turn for everything that this gives
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
    forwards: list[float] = []
    steps: list[float] = []
    several: list[float] = []
    host: list[float] = []
    for _ in turns:
        steps += _times(whole, synchronize, seconds, host)
        forwards += _times(forward, synchronize, seconds / 3)
        several += [each / IN_A_ROW for each in _times(in_a_row, synchronize, seconds)]
    by_kernel = [] if tiny else _kernels(whole)
    row: Row = {
        "model": named(name, batch),
        "column": column,
        "loss": loss,
        "forward": statistics.median(forwards),
        "step": statistics.median(steps),
        "step_quartiles": _quartiles(steps),
        "in_a_row": statistics.median(several),
        "in_a_row_quartiles": _quartiles(several),
        "host": statistics.median(host),
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
) -> list[float]:
    """The times of calls in milliseconds; into `host`, how long the host took to enqueue each."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        synchronize()
        start = time.perf_counter()
        call()
        enqueued = time.perf_counter()
        synchronize()
        times.append((time.perf_counter() - start) * 1e3)
        if host is not None:
            host.append((enqueued - start) * 1e3)
    return times


def _quartiles(times: list[float]) -> tuple[float, float]:
    """Between which half of the times lie."""
    first, _, third = statistics.quantiles(times, n=4)
    return first, third


def named(name: str, batch: int | None) -> str:
    """What the tables call a model of so many samples; None: its own number of them."""
    return name if batch is None else f"{name}, batch {batch}"
