#!/usr/bin/env python3
"""Several GPUs: synchronised batch norm (layers, messages, ResNet-50's step, what 8 and 64 GPUs would give), and how
much of DistributedDataParallel's messages runs beside the gradients, with enable() and without. With --parts models,
whole steps of ResNet-50 under DistributedDataParallel and of a Llama under FSDP2, compiled by every process.

    torchrun --nproc-per-node 2 tools/distributed_bench.py --json sync.json
    torchrun --nproc-per-node 2 tools/distributed_bench.py --tiny        # on a CPU by gloo, to try it out

Every time is the median over repetitions of the slowest process's. Peers take turns. A layer's step is its forward and
backward pass; what a peer costs more than the local batch norm, which does not synchronise, is the price of
synchronising. "graph": the step captured in a CUDA graph and replayed, so that the host's time does not count.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from distributed_peers import PEERS, all_gather
from distributed_tables import printed
from results_file import machine
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]

import gradkern.torch

SIDES = {64: 112, 128: 56, 256: 56, 512: 28, 1024: 14, 2048: 7}  # of images with as many channels, as in ResNet-50
SMALL = 7
Step = Callable[[], Any]
Rows = list[dict[str, Any]]


class Bench:
    """Where and how long it measures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cuda = not options.tiny
        self.repeats = 5 if self.cuda else 1  # of steps that gradkern.torch.tune times
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device()) if self.cuda else torch.device("cpu")
        self.dtype = getattr(torch, options.dtype)
        self.peers = [name for name in PEERS if self.cuda or name in ("local", "gradkern")]

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def times(self, steps: Mapping[str, Step], seconds: float) -> dict[str, float]:
        """Of each step, in microseconds."""
        for step in steps.values():  # what comes first finds clocks low, and NCCL and PyTorch with much to do once
            self._once(step, 20 if self.cuda else 1)
        once = {name: self._once(step, 3) for name, step in steps.items()}
        inner = {name: max(1, min(20, round(0.01 / each))) for name, each in once.items()}
        rounds = max(5, min(100, round(seconds / sum(once[name] * inner[name] for name in steps))))
        found: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds):
            for name, step in steps.items():
                found[name].append(self._once(step, inner[name]))
        return {name: 1e6 * statistics.median(each) for name, each in found.items()}

    def _once(self, step: Step, repeats: int) -> float:
        """Seconds of one of some steps, of the slowest process: all take as many."""
        self.wait()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        self.wait()
        slowest = torch.tensor((time.perf_counter() - start) / repeats, device=self.device, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return float(slowest)

    def captured(self, step: Step) -> Step:
        """The step as a graph."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step()
        return graph.replay


def layers(bench: Bench) -> Rows:
    """A layer's forward and backward pass for each number of channels, of the sizes of ResNet-50 and small."""
    rows: Rows = []
    options = bench.options
    for channels in options.channels:
        for side in dict.fromkeys((4 if options.tiny else SIDES[channels], SMALL)):
            shape = (options.batch, channels, side, side)
            steps = {name: layer(bench, name, shape) for name in bench.peers}
            times = {"eager": bench.times(steps, options.seconds)}
            if bench.cuda:
                graphs = {name: bench.captured(step) for name, step in steps.items()}
                times["graph"] = bench.times(graphs, options.seconds)
            rows += [{"channels": channels, "side": side, "mode": mode, "us": each} for mode, each in times.items()]
    return rows


def layer(bench: Bench, name: str, shape: tuple[int, ...]) -> Step:
    module = PEERS[name](nn.BatchNorm2d(shape[1])).to(bench.device)
    order = torch.channels_last if bench.options.order == "channels_last" else torch.contiguous_format
    x, grad = (torch.randn(shape, device=bench.device).to(bench.dtype, memory_format=order) for _ in range(2))
    leaves = x.requires_grad_(), *module.parameters()
    return lambda: torch.autograd.grad(module(x), leaves, grad)


def messages(bench: Bench) -> Rows:
    """A message forward and one backward, among 2, 4, 8... processes, in a loop without anything else."""
    rows: Rows = []
    for size in [2**n for n in range(1, 11) if 2**n <= bench.size]:
        group = dist.new_group(list(range(size)))
        for channels in bench.options.channels:
            mine, sums = (torch.zeros(n, device=bench.device) for n in (2 * channels + 1, 2 * channels))
            every = (
                [torch.zeros_like(mine) for _ in range(size)] if not bench.cuda else mine.new_zeros(size, mine.numel())
            )
            steps: dict[str, Step] = {"gather": lambda: None, "reduce": lambda: None}
            if bench.rank < size:
                gather: Any = all_gather if bench.cuda else dist.all_gather
                steps["gather"] = partial(gather, every, mine, group=group)
                steps["reduce"] = partial(dist.all_reduce, sums, group=group)
            rows.append({"size": size, "channels": channels, "us": bench.times(steps, 0.2)})
    return rows


def networks(bench: Bench) -> tuple[dict[str, float], dict[int, int]]:
    """ResNet-50's step under DistributedDataParallel, autocast bfloat16, channels-last, in microseconds; and how many
    batch norms it has, by their channels.
    """
    steps = {name: network(bench, name) for name in bench.peers}
    found = bench.times(steps, bench.options.seconds * 4)
    if bench.options.enable:
        with gradkern.torch.enabled(devices=bench.device.type):
            gradkern.torch.tune(steps["gradkern"], repeats=bench.repeats)
            for _ in range(5):
                steps["gradkern"]()
            found |= bench.times({"gradkern+enable": steps["gradkern"]}, bench.options.seconds)
    norms = [each.num_features for each in resnet(bench).make().modules() if isinstance(each, nn.BatchNorm2d)]
    return found, dict(Counter(norms))


def models(bench: Bench) -> dict[str, dict[str, dict[str, float]]]:
    """Whole training steps, optimizer included: ms, seconds of the first step and loss, by model and column."""
    from distributed_models import TRAINED, training_steps

    every = {}
    for name in bench.options.models or TRAINED:
        steps, every[name] = training_steps(bench, name)
        for column, us in bench.times(steps, bench.options.seconds * 4).items():
            every[name][column]["ms"] = us / 1e3
    return every


def resnet(bench: Bench) -> Any:
    from train_models import MODELS, TINY

    return (TINY if bench.options.tiny else MODELS)["ResNet-50"]


def network(bench: Bench, name: str) -> Step:
    """The step of ResNet-50 with this peer's batch norms, warm."""
    record, kind = resnet(bench), bench.device.type
    count = 2 if bench.options.tiny else bench.options.images
    batch = {key: each[:count].to(bench.device) for key, each in record.make_batch().items()}
    torch.manual_seed(0)
    model: Any = PEERS[name](record.make()).to(bench.device)
    model = DistributedDataParallel(model, device_ids=[bench.device] if bench.cuda else None)

    def step() -> None:
        with torch.autocast(kind, torch.bfloat16, enabled=bench.cuda):
            loss = record.loss(model, batch)
        loss.backward()
        model.zero_grad()

    for _ in range(5):
        step()
    return step


def overlap(bench: Bench) -> tuple[dict[str, dict[str, float]], str]:
    """Of ResNet-50's step with local batch norms, by PyTorch alone and with enable(): the step, the messages of
    DistributedDataParallel, and how much of them no other kernel runs beside, in microseconds of this process; and what
    gradkern took of the step, and why not all.
    """
    step = network(bench, "local")
    us = {"eager": _step_us(bench, step)}  # before anything is profiled, which makes the host slower for good
    with gradkern.torch.enabled(devices=bench.device.type):
        gradkern.torch.tune(step, repeats=bench.repeats)
        us["enable"] = _step_us(bench, step)
        lasting = {"enable": _lasting(bench, step)}
        report = str(gradkern.torch.report())
    lasting["eager"] = _lasting(bench, step)
    return {name: {"step": us[name], **lasting[name]} for name in us}, report


def _step_us(bench: Bench, step: Step) -> float:
    return bench.times({"": step}, bench.options.seconds)[""]


def _lasting(bench: Bench, step: Step, steps: int = 5) -> dict[str, float]:
    """How long messages and other kernels last in a step, by torch.profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        for _ in range(steps):
            step()
        bench.wait()
    spans = [
        (each.name, each.time_range.start, each.time_range.end)
        for each in profiled.events() or ()
        if each.device_type.name == "CUDA"
    ]
    messages = [(start, end) for name, start, end in spans if "nccl" in name.lower()]
    others = [(start, end) for name, start, end in spans if "nccl" not in name.lower()]
    both, alone = union(messages), union(messages + others) - union(others)
    return {"messages": both / steps, "messages alone": alone / steps, "others": union(others) / steps}


def union(spans: Sequence[tuple[float, float]]) -> float:
    """How long at least one of these lasts."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    parser.add_argument(
        "--parts", default="layers,messages,ResNet-50", help="which of these, models or overlap (%(default)s)"
    )
    parser.add_argument("--models", type=lambda text: text.split(","), help="which of --parts models (both)")
    parser.add_argument("--channels", type=lambda text: [int(each) for each in text.split(",")], default=list(SIDES))
    parser.add_argument("--batch", type=int, default=32, help="images of a process, in a layer")
    parser.add_argument("--images", type=int, default=64, help="images of a process, in ResNet-50")
    parser.add_argument("--dtype", default="bfloat16", help="of the layers' data; default bfloat16")
    parser.add_argument("--order", default="channels_last", choices=["channels_last", "contiguous"])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each layer and mode")
    parser.add_argument("--enable", action="store_true", help="ResNet-50 also with enable(): searches for minutes")
    parser.add_argument("--tiny", action="store_true", help="small layers on the CPU")
    options = parser.parse_args()
    if not dist.is_torchelastic_launched():
        parser.error("start it with torchrun, which says how many processes there are")
    if not options.tiny and not torch.cuda.is_available():
        parser.error("there is no GPU; --tiny tries it out on a CPU")
    if options.tiny and "overlap" in options.parts:
        parser.error("overlap is of kernels on GPUs: not with --tiny")
    if options.tiny:
        torch.set_num_threads(1)
        options.channels, options.dtype, options.batch = [16], "float32", 2
    else:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch.backends.cudnn.benchmark = True
    device = None if options.tiny else torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("gloo" if options.tiny else "nccl", device_id=device)
    bench = Bench(options)
    found: dict[str, Any] = {"machine": machine(bench.cuda), "size": bench.size, "dtype": options.dtype}
    for part in options.parts.split(","):
        if part == "layers":
            found[part] = layers(bench)
        elif part == "messages":
            found[part] = messages(bench)
        elif part == "ResNet-50":
            found[part], found["norms"] = networks(bench)
        elif part == "models":
            found[part] = models(bench)
        elif part == "overlap":
            found[part], found["taken"] = overlap(bench)
        else:
            parser.error(f"no part {part!r}; there are layers, messages, ResNet-50, models and overlap")
    if bench.rank == 0:
        print(printed(found), flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
