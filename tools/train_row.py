"""One row of train_bench.py: the training step of a model in every column, timed in turns in this process."""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from kernel_kinds import by_kind
from train_models import MODELS, TINY, Model, dropouts

import gradkern.torch
from gradkern.system.data_stack import with_room
from gradkern.torch.compile_backend import choice
from gradkern.torch.overrides.step_comparison import in_round

__all__ = ["BF16", "COLUMNS", "IN_A_ROW", "TrainingRow", "model_of", "seed"]

COLUMNS = (
    *("eager", "enable", "compile", "gradkern", "compile loss", "gradkern loss"),
    *("compile+graph", "gradkern+graph"),
)
IN_A_ROW = 8
BF16 = " @bf16"  # behind the name of a model whose parameters are in bfloat16
KEPT_KERNELS = 25
Result = dict[str, Any]


def model_of(name: str, tiny: bool) -> Model:
    return (TINY if tiny else MODELS)[name.removesuffix(BF16)]


class TrainingRow:
    """A model, its batch and its optimizer, which all columns share.

    result   what was found so far. A column that fails says why in its place, and the others go on
    """

    def __init__(self, name: str, columns: list[str], tiny: bool = False) -> None:
        self._name, self._tiny, self._cuda = name, tiny, torch.cuda.is_available()
        self._device = "cuda" if self._cuda else "cpu"
        self._record = model_of(name, tiny)
        self._autocast = not name.endswith(BF16)
        torch.manual_seed(0)
        model = self._record.make().to(self._device)
        self._model: Any = model if self._autocast else model.to(torch.bfloat16)
        self._batch = {key: each.to(self._device) for key, each in self._record.make_batch().items()}
        parameters = list(self._model.parameters())
        self._initial = {key: each.to("cpu", copy=True) for key, each in self._model.state_dict().items()}
        self._optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True, capturable=self._cuda)
        self._losses: dict[str, Callable[[Any], Any]] = {}
        self._graphs: dict[str, Callable[[], Any]] = {}
        columns = [each for each in columns if self._record.language or not each.endswith("loss")]
        self.result: Result = {
            "model": name,
            "package": self._record.package,
            "configuration": {"kind": self._record.kind, **self._record.options},
            "batch": {key: list(each.shape) for key, each in self._batch.items()},
            "precision": "autocast to bfloat16" if self._autocast else "bfloat16",
            "channels_last": self._record.last,
            "dropout": dropouts(self._model),
            "parameters": sum(each.numel() for each in parameters),
            "columns": {each: {} for each in columns},
        }

    @property
    def _plain(self) -> list[str]:
        """The columns that are no graphs."""
        return [each for each in self.result["columns"] if not each.endswith("graph")]

    def _do(self, column: str, work: Callable[[], None]) -> None:
        """Some work on a column, which ends with the column's first error."""
        found = self.result["columns"][column]
        if "error" in found:
            return
        start = time.perf_counter()
        try:
            with self._in_force(column):
                work()
        except Exception as error:
            kind = type(error)
            words = [f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), *str(error).splitlines()[:1]]
            found["error"] = ": ".join(words)
        self._say(f"{column} {found.get('error', '')}".rstrip(), time.perf_counter() - start)

    def _say(self, what: str, seconds: float) -> None:
        print(f"[{self._name}] {what}: {seconds:.1f} s", file=sys.stderr, flush=True)

    def _in_force(self, column: str) -> AbstractContextManager[Any]:
        if column != "enable":
            return nullcontext()
        return gradkern.torch.enabled(devices=self._device, min_bytes=0 if self._tiny else None)

    # --- making ready -------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Compile, by a forward and a backward pass. Other processes may compile meanwhile."""
        for column in self._plain:
            self._do(column, lambda column=column: self._prepare(column))
        self.free()

    def free(self) -> None:
        """Leave memory to other processes."""
        self._optimizer.zero_grad()
        if self._cuda:
            torch.cuda.empty_cache()

    def _prepare(self, column: str) -> None:
        before = len(gradkern.torch.report().compiled)
        self._losses[column] = self._loss(column)
        if column in ("eager", "enable"):
            return
        start = time.perf_counter()
        self._backward(column)
        self._wait()
        found = self.result["columns"][column]
        found["compiled_seconds"] = time.perf_counter() - start
        findings = gradkern.torch.report().compiled[before:]
        if column.startswith("gradkern"):
            self._compile_plain(column)
            found["fused"] = sum(not each.reason for each in findings)
            found["left"] = dict(Counter(f"{each.fusion}: {each.reason}" for each in findings if each.reason))

    def _compile_plain(self, column: str) -> None:
        """Inductor's form, which `tune` compares: compiled there, it would wait for locks of rows that stand still."""
        for plain in (True, False):
            for each in choice.live():
                each.plain = plain
            if plain:
                self._backward(column)
                self._wait()

    def _loss(self, column: str) -> Callable[[Any], Any]:
        """What computes a column's loss of a batch."""
        model, loss = self._model, self._record.loss
        if column in ("eager", "enable"):
            return lambda batch: loss(model, batch)
        how: dict[str, Any] = {"backend": "gradkern"} if column.startswith("gradkern") else {}
        if how and self._tiny:
            how["options"] = {"gradkern": True}
        if column.endswith("loss"):
            return torch.compile(lambda batch: loss(model, batch), **how)
        compiled = torch.compile(model, **how)
        return lambda batch: loss(compiled, batch)

    def _backward(self, column: str) -> Any:
        """Forward and backward pass."""
        self._optimizer.zero_grad()
        with torch.autocast(self._device, torch.bfloat16, enabled=self._autocast):
            loss = self._losses[column](self._batch)
        loss.backward()
        return loss.detach()

    def _step(self, column: str) -> Any:
        loss = self._backward(column)
        self._optimizer.step()
        return loss

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()

    # --- measuring: nothing else may run meanwhile --------------------------------------------------------------------

    def tune(self) -> None:
        """What a user does before a training loop, and three steps."""
        torch.backends.cudnn.benchmark = True
        for column in self._plain:
            self._do(column, lambda column=column: self._tune(column))

    def _tune(self, column: str) -> None:
        if column == "enable" or column.startswith("gradkern"):
            gradkern.torch.tune(lambda: self._step(column), repeats=0 if self._tiny else 5)
        for _ in range(2):
            self._step(column)
        found = self.result["columns"][column]
        compared = gradkern.torch.report().steps
        if column.startswith("gradkern") and compared:
            found["tuned"] = str(compared[-1])
        found["loss"] = float(self._step(column))
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._step(column)
            found["memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
        if column == "enable":
            report = gradkern.torch.report()
            found["taken"], found["declined"] = report.taken, report.declined

    def time(self, seconds: float) -> None:
        """Steps, in turns of some in a row, for so many seconds a column."""
        self._time_in_turns({each: lambda each=each: self._step(each) for each in self._plain}, seconds)

    def time_graphs(self, seconds: float) -> None:
        """The whole step in a CUDA graph, of the columns that are one."""

        def capture(column: str) -> None:
            step = gradkern.torch.graphed(lambda: self._step(column.removesuffix("+graph")))
            for _ in range(4):
                step()
            self._wait()
            self._graphs[column] = step

        for column in self.result["columns"]:
            if column.endswith("graph"):
                self._do(column, lambda column=column: capture(column))
        self._time_in_turns(self._graphs, seconds)

    def _time_in_turns(self, steps: dict[str, Callable[[], Any]], seconds: float) -> None:
        times: dict[str, list[float]] = {each: [] for each in steps}

        @with_room  # else a column's launches may each map memory, depending on the depth here
        def take_turn(column: str) -> None:
            steps[column]()  # what other columns left in the processor's caches is of no use
            self._wait()
            start = time.perf_counter()
            for _ in range(IN_A_ROW):
                steps[column]()
            self._wait()
            times[column].append((time.perf_counter() - start) * 1e3 / IN_A_ROW)

        end = time.perf_counter() + seconds * len(steps)
        turns = 0
        with self._silent():
            while steps and (turns < 3 or time.perf_counter() < end):
                for column in in_round(turns, list(steps)):
                    self._do(column, lambda column=column: take_turn(column))
                turns += 1
        for column, each in times.items():
            if "error" not in self.result["columns"][column]:
                first, middle, third = statistics.quantiles(each, n=4)
                self.result["columns"][column] |= {
                    "ms": middle,
                    "quartiles": [first, third],
                    "turns": [round(ms, 3) for ms in each],
                }
                self._say(f"{column} {middle:.2f} ms", sum(each) * IN_A_ROW / 1e3)

    @contextmanager
    def _silent(self) -> Iterator[None]:
        say, self._say = self._say, lambda what, seconds: None
        try:
            yield
        finally:
            self._say = say

    def profile(self, steps: int = 3) -> None:
        """The kernels of a step, by kind, and those that take the most. Profiling makes the host slower for good. A
        graph may have other kernels than the steps outside of it, where the host counts: see `tune`.
        """
        if not self._cuda:
            return
        from torch.profiler import ProfilerActivity, profile  # pyright: ignore[reportMissingImports]

        def kernels(column: str, step: Callable[[], Any]) -> None:
            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                for _ in range(steps):
                    step()
                self._wait()
            found = [
                (each.key, each.count / steps, each.self_device_time_total / steps)
                for each in profiled.key_averages()
                if each.self_device_time_total
            ]
            found.sort(key=lambda each: -each[2])
            self.result["columns"][column] |= {
                "kernels_ms": sum(us for _, _, us in found) / 1e3,
                "kinds": by_kind(found),
                "kernels": [(name[:120], round(count, 1), round(us, 1)) for name, count, us in found[:KEPT_KERNELS]],
            }

        plain = {each: lambda each=each: self._step(each) for each in self._plain}
        for column, step in {**plain, **self._graphs}.items():
            self._do(column, lambda column=column, step=step: kernels(column, step))

    # --- gradients ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Each column's gradients at the first weights, without dropout, against float32 without TF32: over all
        parameters together, and in the median of them. A graph replays its column's kernels.
        """
        self.free()
        torch.backends.cudnn.benchmark = False
        self._model.load_state_dict(self._initial)  # trained on one batch, gradients are rounding and little else
        dropouts(self._model, 0.0)
        expected = self._exact_gradients()
        for column in self._plain:
            self._do(column, lambda column=column: self._check(column, expected))

    def _check(self, column: str, expected: list[Any]) -> None:
        seed()
        self._backward(column)
        squares, errors = [0.0, 0.0], []
        for parameter, gradient in zip(self._model.parameters(), expected, strict=True):
            if gradient is None:
                continue
            mine = torch.zeros_like(gradient) if parameter.grad is None else parameter.grad.float()
            difference, norm = float((mine - gradient).norm()), float(gradient.norm())
            squares = [squares[0] + difference**2, squares[1] + norm**2]
            errors += [difference / norm] if norm else []
        found = self.result["columns"][column]
        found["gradient_error"] = (squares[0] / squares[1]) ** 0.5
        found["median_gradient_error"] = statistics.median(errors)

    def _exact_gradients(self) -> list[Any]:
        self._optimizer.zero_grad()
        model = copy.deepcopy(self._model).float()
        seed()
        torch.backends.cudnn.allow_tf32 = False  # of matrix products it is False by default
        self._record.loss(model, self._batch).backward()
        torch.backends.cudnn.allow_tf32 = True
        return [each.grad for each in model.parameters()]


def seed() -> None:
    """Of what a model draws beside dropout, as the masks of wav2vec 2.0."""
    import numpy as np

    torch.manual_seed(0)
    np.random.seed(0)
