#!/usr/bin/env python3
"""Training steps of models that people train, as their packages make them: with and without gradkern.torch.

    pip install -e .[cu13,bench-models]
    tools/train_bench.py --json train.json                     # all models of train_models.py
    tools/train_bench.py ResNet-50 "Llama 12x768 @bf16" --columns eager,compile,gradkern
    tools/train_bench.py --tiny DynUNet --columns eager,enable    # to try it out, on a CPU too

A step is zero_grad, the forward pass under autocast to bfloat16 with float32 parameters, the model's own loss, the
backward pass and fused AdamW. " @bf16" behind the name of a language model: parameters in bfloat16, no autocast. The
columns are eager; enable, that is gradkern.torch.enable() and tune(repeats=5); compile, torch.compile of the model;
gradkern, the same with backend="gradkern" and tune(repeats=5); and the last two as one CUDA graph of the whole step. Of
language models, whose logits are among the outputs of the compiled model, "compile loss" and "gradkern loss" compile a
function that returns the loss alone.

A row is one process, in which the columns take turns of 8 steps; a time is the median of the turns. Turns begin a new
chunk of CPython's stack, so that no column's launches begin at the end of one, where each takes longer. The next rows
compile meanwhile (--jobs), but stand still (SIGSTOP) while a row is tuned, timed and profiled; each has caches of its
own, as a row that stands still would hold their locks. Gradients are compared with float32 without TF32, without
dropout. --json keeps rows as they come; with --resume those that are there with all columns are not measured again. A
column or row that fails, or takes longer than --limit, says why in its place.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import results_file
from needs import require_gpu
from train_tables import kinds, steps

_MARK = "train_bench: "
_CACHES = "GRADKERN_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
Row = dict[str, Any]


# --- a row's process --------------------------------------------------------------------------------------------------


def measure(name: str, args: argparse.Namespace) -> None:
    """Measure a row in this process. What was found is printed after every part of the work."""
    from train_row import TrainingRow

    start = time.perf_counter()
    try:
        row = TrainingRow(name, args.columns, args.tiny)
        row.prepare()
        with _alone():
            row.tune()
            row.time(args.seconds)
            _print(row.result)
            row.time_graphs(args.seconds)
            _print(row.result)
            row.profile()
            _print(row.result)
        if args.check:
            row.check()
        _print({**row.result, "seconds": time.perf_counter() - start})
    except Exception as error:
        _print({"model": name, "error": f"{type(error).__name__}: {error}".splitlines()[0]})
        raise


def _print(message: Row | str) -> None:
    print(_MARK + json.dumps(message), flush=True)


@contextmanager
def _alone() -> Iterator[None]:
    """While all other rows' processes stand still."""
    _print("ready")
    sys.stdin.readline()
    yield
    _print("measured")


# --- the processes of all rows ----------------------------------------------------------------------------------------


class Rows:
    """Rows in processes of their own, some at a time.

    rows   those that were found, by the model's name; each is kept in --json as it comes
    """

    def __init__(self, args: argparse.Namespace, caches: str) -> None:
        self._args, self._caches = args, caches
        self._jobs = asyncio.Semaphore(args.jobs)
        self._alone = asyncio.Lock()
        self._running: set[int] = set()
        self.rows: dict[str, Row] = {}
        if args.json is not None and args.json.exists():
            self.rows = {row["model"]: row for row in json.loads(args.json.read_text())["rows"]}
        self._machine = results_file.machine(has_gpu())
        if args.commit:
            self._machine["commit"] = args.commit

    async def measure(self, names: list[str]) -> None:
        todo = [each for each in names if not (self._args.resume and self._is_done(each))]
        await asyncio.gather(*map(self._row, todo))

    def _is_done(self, name: str) -> bool:
        found = self.rows.get(name, {}).get("columns", {})
        wanted = {each for each in self._args.columns if not each.endswith("loss")}
        return wanted <= {column for column, each in found.items() if "ms" in each}

    async def _row(self, name: str) -> None:
        async with self._jobs:
            async with self._alone:  # no process starts while a row is timed
                pipe, command = asyncio.subprocess.PIPE, _command(name, self._args)
                env = os.environ | {each: f"{self._caches}/{name}/{each}".replace(" ", "_") for each in _CACHES}
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=pipe, stdout=pipe, limit=1 << 26, env=env
                )
            self._running.add(process.pid)
            error = ""
            try:
                async with asyncio.timeout(self._args.limit):
                    await self._follow(name, process)
                    if await process.wait():
                        error = f"exit status {process.returncode}"
            except TimeoutError:
                error = f"longer than {self._args.limit:g} s"
            finally:
                self._running.discard(process.pid)
                for pid in descendants(process.pid) if process.returncode is None else ():
                    os.kill(pid, signal.SIGKILL)
            if error and "error" not in self.rows.get(name, {}):
                self._keep({**(self.rows.get(name) or {"model": name}), "error": error})

    async def _follow(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        alone = False
        self.rows.pop(name, None)
        try:
            async for line in process.stdout:
                if not line.startswith(_MARK.encode()):
                    continue
                message = json.loads(line.removeprefix(_MARK.encode()))
                if message == "ready":
                    await self._alone.acquire()
                    alone = True
                    self._signal_others(process.pid, signal.SIGSTOP)
                    process.stdin.write(b"\n")
                elif message == "measured":
                    alone = self._end_alone(process.pid)
                else:
                    self._keep(message)
        finally:
            if alone:
                self._end_alone(process.pid)

    def _end_alone(self, pid: int) -> bool:
        self._signal_others(pid, signal.SIGCONT)
        self._alone.release()
        return False

    def _signal_others(self, pid: int, what: signal.Signals) -> None:
        for other in self._running - {pid}:
            for each in descendants(other):
                try:
                    os.kill(each, what)
                except ProcessLookupError:
                    continue

    def _keep(self, row: Row) -> None:
        self.rows[row["model"]] = {**row, "machine": self._machine}
        if self._args.json is not None:
            results_file.write(self._args.json, json.dumps({"rows": self.in_order()}, indent=1).encode())

    def in_order(self) -> list[Row]:
        """The rows, models in the order of train_models.py."""
        from train_models import MODELS

        places = {name: place for place, name in enumerate(MODELS)}
        return sorted(self.rows.values(), key=lambda row: places.get(row["model"].removesuffix(" @bf16"), len(places)))


def descendants(pid: int) -> list[int]:
    """A process and all that it and its children have started; none of them where there is no /proc."""
    parents: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it has ended
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def has_gpu() -> bool:
    """Whether PyTorch can use one."""
    import torch  # pyright: ignore[reportMissingImports]

    return torch.cuda.is_available()


def _command(name: str, args: argparse.Namespace) -> list[str]:
    """What measures one row, in a process of its own."""
    command = [sys.executable, __file__, name, "--here", "--columns", ",".join(args.columns)]
    command += ["--seconds", str(args.seconds)]
    return command + ["--tiny"] * args.tiny + ["--no-check"] * (not args.check)


def main() -> None:
    """Measure the rows that are asked for, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="by default all, then the language models @bf16")
    parser.add_argument("--columns", help="with commas between; by default all")
    parser.add_argument("--seconds", type=float, default=2.0, help="for the steps of each column (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="rows that compile at a time (%(default)s); needs Linux")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for a row, waiting included (%(default)s)")
    parser.add_argument("--no-check", dest="check", action="store_false", help="compare no gradients")
    parser.add_argument("--tiny", action="store_true", help="small models, on the CPU where there is no GPU")
    parser.add_argument("--json", type=Path, help="keep the rows in this file, beside those that are there")
    parser.add_argument("--resume", action="store_true", help="leave out rows that --json has")
    parser.add_argument("--commit", default="", help="what is measured, where there is no Git")
    parser.add_argument("--kinds", action="store_true", help="print the kernels' times by kind, too")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        from train_row import BF16, COLUMNS, model_of
    except ImportError as error:
        parser.error(f"{error}; it needs the extra bench-models")
    from train_models import MODELS, TINY

    possible = [each for each in COLUMNS if has_gpu() or not each.endswith("graph")]
    args.columns = args.columns.split(",") if args.columns else possible
    unknown = [each for each in args.columns if each not in COLUMNS]
    if unknown:
        parser.error(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    if args.tiny and not set(args.columns) <= set(possible):
        parser.error("a CPU captures no graph")
    table = TINY if args.tiny else MODELS
    models = args.models or [*table, *(name + BF16 for name, each in table.items() if each.language)]
    for each in models:
        if each.removesuffix(BF16) not in table:
            parser.error(f"no model {each!r}; there are {', '.join(table)}")
        if each.endswith(BF16) and not model_of(each, args.tiny).language:
            parser.error(f"{each}: only language models are trained with parameters in bfloat16")
    if args.here:
        measure(models[0], args)
        return
    if not args.tiny:
        require_gpu(parser, "--tiny is for a CPU")
    with tempfile.TemporaryDirectory(prefix="train_bench_", ignore_cleanup_errors=True) as caches:
        rows = Rows(args, caches)
        asyncio.run(rows.measure(models))
    print(steps(rows.in_order()))
    if args.kinds:
        print(f"\n{kinds(rows.in_order())}")


if __name__ == "__main__":
    main()
