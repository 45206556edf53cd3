"""Cells of train_bench.py: a model's training steps, each in one of the ways."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

__all__ = ["Row", "measured", "named"]

IN_A_ROW = 10
Row = dict[str, Any]


def measured(
    name: str,
    columns: list[str],
    tiny: bool,
    seconds: float,
    fusions: Any = None,
    batch: int | None = None,
    turns: int = 1,
) -> list[Row]:
    """The cells of a model's columns, in this process: all are made ready, and then timed in turns. Times in
    milliseconds: of the forward pass, of a step alone and of one in a row, of the host for a step, of the first step,
    of its kernels; memory in MiB, PyTorch's at its peak and gradkern's scratch, where there is one column.

    seconds   for which steps alone are timed in all turns together, and steps in a row
    """
    cells = [_Cell(name, column, tiny, fusions, batch, alone=len(columns) == 1) for column in columns]
    for cell in cells:
        cell.do(cell.make_ready)
    for _ in range(turns):
        for cell in cells:
            cell.do(lambda cell=cell: cell.take_turn(seconds / turns))
    for cell in cells:
        cell.do(cell.conclude)
    return [cell.row for cell in cells]


class _Cell:
    """One column. row: what was found, or the error with which it has failed: then it does nothing more."""

    def __init__(self, name: str, column: str, tiny: bool, fusions: Any, batch: int | None, alone: bool) -> None:
        from train_models import CASES

        case = CASES[tiny][name]
        self._case = case if batch is None else replace(case, shape=(batch, *case.shape[1:]))
        self._tiny, self._fusions, self._alone = tiny, fusions, alone
        self._parts, self._device = column.split("+"), "cpu" if tiny else "cuda"
        self._times: dict[str, list[float]] = {each: [] for each in ("forward", "step", "in_a_row", "host")}
        self._answered = [0, 0]  # calls that gradkern has answered, and PyTorch
        self.row: Row = {"model": named(name, batch), "column": column}

    def do(self, work: Callable[[], None]) -> None:
        """Some of its work, with what the column has of the process for itself."""
        if "error" in self.row:
            return
        try:
            if "enable" in self._parts:
                self._do_enabled(work)
            else:
                work()
        except Exception as error:
            kind = type(error)
            words = [f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), *str(error).splitlines()[:1]]
            self.row["error"] = ": ".join(words)

    def _do_enabled(self, work: Callable[[], None]) -> None:
        import gradkern.torch

        gradkern.torch.enable(devices=self._device, min_bytes=0 if self._tiny else None)
        try:
            before = gradkern.torch.report()
            work()
            after = gradkern.torch.report()
        finally:
            if not self._alone:
                gradkern.torch.disable()
        self._answered[0] += after.taken - before.taken
        self._answered[1] += after.declined - before.declined

    def make_ready(self) -> None:
        """Up to steps that are as all others will be."""
        import torch  # pyright: ignore[reportMissingImports]

        self._build()
        self._wait()
        start = time.perf_counter()
        if "enable" in self._parts or "gradkern" in self._parts:
            import gradkern.torch

            gradkern.torch.tune(self._step, repeats=5 if "enable" in self._parts and not self._tiny else 0)
        elif "accelerate" in self._parts:
            import gradkern

            with gradkern.tune():
                self._step()
        self.row["loss"] = float(self._step().float().mean())
        self.row["first"] = (time.perf_counter() - start) * 1e3
        for _ in range(2 if self._tiny else 10):
            self._step()
        self._whole = _graphed(self._step) if "graph" in self._parts else self._step
        if not self._tiny:
            torch.cuda.reset_peak_memory_stats()

    def take_turn(self, seconds: float) -> None:
        if not self._alone:
            self._whole()  # what other columns have left in the processor's caches is of no use
        times = self._times
        times["step"] += _times(self._whole, self._wait, seconds, times["host"])
        times["forward"] += _times(self._forward, self._wait, seconds / 3)
        times["in_a_row"] += [each / IN_A_ROW for each in _times(self._in_a_row, self._wait, seconds)]

    def conclude(self) -> None:
        """Make the row."""
        import torch  # pyright: ignore[reportMissingImports]

        by_kernel = [] if self._tiny else _kernels(self._whole)
        measures_memory = self._alone and not self._tiny
        self.row |= {name: statistics.median(times) for name, times in self._times.items()}
        self.row |= {f"{name}_quartiles": _quartiles(self._times[name]) for name in ("step", "in_a_row")}
        self.row |= {
            "kernels": None if self._tiny else sum(us for _, _, us in by_kernel) / 1e3,
            "by_kernel": by_kernel,
            "memory": (torch.cuda.max_memory_allocated() + _scratch_bytes()) / 2**20 if measures_memory else None,
            "device": "CPU" if self._tiny else torch.cuda.get_device_name(),
            "torch": torch.__version__,
        }
        if "enable" in self._parts or "gradkern" in self._parts:
            import gradkern.torch

            report, (taken, declined) = gradkern.torch.report(), self._answered
            fused = sum(not each.reason for each in report.compiled) if "gradkern" in self._parts else 0
            self.row |= {"taken": taken, "declined": declined, "fused": fused, "report": str(report)}

    def _build(self) -> None:
        """The model, in the column's way, and what it is given."""
        import torch  # pyright: ignore[reportMissingImports]

        case, parts = self._case, self._parts
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        conv: Any = torch.backends.cudnn.conv  # pyright: ignore[reportAttributeAccessIssue]
        conv.fp32_precision = "ieee" if case.precision == "f32" else "tf32"
        model: Any = case.model().to(self._device)
        dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
        model = model.to(dtype)
        if case.last:
            model = model.to(memory_format=torch.channels_last)
        if case.words:
            x = torch.randint(model.words.num_embeddings, case.shape, device=self._device)
            target = torch.randint(case.classes or 1, case.shape, device=self._device)
        else:
            x = torch.randn(case.shape, device=self._device, dtype=dtype)
            x = x.to(memory_format=torch.channels_last) if case.last else x
            spatial = case.shape[2:] if len(case.shape) == 5 else ()
            target = torch.randint(case.classes, (case.shape[0], *spatial), device=self._device)
        if "accelerate" in parts:
            from gradkern.torch import accelerate

            accelerate(model)
        if "liger" in parts:
            from train_liger import swap

            model = swap(model)
        self._model, self._x, self._target = model, x, target
        self._gradient: Any = None  # of a loss, 1
        self._run: Callable[..., Any] = model
        if "compile" in parts:
            self._run = torch.compile(model)
        elif "gradkern" in parts:
            import gradkern.torch  # noqa: F401  whose backend it is

            chosen: Any = None if self._fusions is None else {"gradkern": self._fusions}
            self._run = torch.compile(model, backend="gradkern", options={"gradkern": True} if self._tiny else chosen)

    def _wait(self) -> None:
        if not self._tiny:
            import torch  # pyright: ignore[reportMissingImports]

            torch.cuda.synchronize()

    def _forward(self) -> Any:
        import torch  # pyright: ignore[reportMissingImports]
        from torch.nn import functional  # pyright: ignore[reportMissingImports]

        case = self._case
        with torch.autocast(self._device, torch.bfloat16, enabled=case.precision == "autocast"):
            y = self._run(self._x)
        if not case.classes:
            return y
        y = y.float()
        if case.words:
            return functional.cross_entropy(y.flatten(0, 1), self._target.flatten())
        return functional.cross_entropy(y, self._target)

    def _step(self) -> Any:
        for each in self._model.parameters():
            each.grad = None
        y = self._forward()
        if y.dim() and self._gradient is None:
            import torch  # pyright: ignore[reportMissingImports]

            self._gradient = torch.randn_like(y)
        y.backward(self._gradient)
        return y

    def _in_a_row(self) -> None:
        for _ in range(IN_A_ROW):
            self._whole()


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
