"""What processes do with SyncBatchNorm, for test_sync_batch_norm.py, which runs it as a script.

python sync_batch_norm_steps.py SIZE FOLDER [cuda]: each of SIZE processes leaves a file of results by case there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gradkern.torch
from gradkern.torch import SyncBatchNorm
from gradkern.torch.sync_batch_norm.exchange import reads_by_nvlink
from helpers import processes
from helpers.torch_on_gpu import no_synchronization

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
CHANNELS, STEPS = 5, 2
Results = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A batch norm over parts of these many images, one for each of the first processes."""

    parts: tuple[int, ...]
    data: torch.dtype = F32
    parameters: torch.dtype = F32
    spatial: tuple[int, ...] = (4, 3)
    order: torch.memory_format = torch.contiguous_format
    options: dict[str, Any] = field(default_factory=dict)
    backend: str = ""  # of torch.compile

    def module(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        kind: Any = (torch.nn.BatchNorm1d, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
        made = kind[len(self.spatial)](CHANNELS, **self.options)
        with torch.no_grad():
            for n, each in enumerate(made.parameters()):
                each.copy_(values(7 + n, CHANNELS).to(self.parameters))
        return made.to(dtype or self.parameters)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The input and the gradient of the output of all parts, in float64, of the data's values."""
        made = (values(2 * step + n, sum(self.parts), CHANNELS, *self.spatial) for n in range(2))
        x, grad = (each.to(self.data).double() for each in made)
        return x, grad


CASES = {
    "one process": Case((6,), F64, F64),
    "two, float32": Case((4, 2)),
    "two, bfloat16, channels last, one empty": Case((0, 3), BF16, order=torch.channels_last),
    "two, float16": Case((3, 5), F16, F16),
    "three, one empty": Case((0, 5, 1), F64, F64),
    "bfloat16, channels last, one empty": Case((0, 2, 3, 1), BF16, order=torch.channels_last),
    "bfloat16 parameters": Case((1, 2, 1, 2), BF16, BF16),
    "float16 rows": Case((3, 5, 2, 1), F16, F16, spatial=()),
    "volumes, no parameters, average": Case(
        (1, 1, 2, 2), spatial=(2, 3, 2), options={"affine": False, "momentum": None}
    ),
    "not tracked": Case((2, 1, 2, 1), spatial=(7,), options={"track_running_stats": False, "eps": 0.1}),
    "compiled": Case((1, 2, 2, 1), backend="aot_eager"),
    "two, compiled": Case((3, 1), F64, F64, options={"momentum": None}, backend="aot_eager"),
}

SYMMETRIC = ("two, float32", "two, bfloat16, channels last, one empty")
"""Of the cases, those that send their messages by collectives and through symmetric memory, where there is some."""


def values(seed: int, *shape: int) -> torch.Tensor:
    """Random, with a mean away from 0; the same in every process."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64) + 0.7


def steps(case: Case, module: Any, place: int, device: str) -> Results:
    """The last of some steps on a process's part: output, gradients and buffers."""
    backend = "inductor" if case.backend and device == "cuda" else case.backend  # which takes long on a CPU
    run = torch.compile(module, fullgraph=True, backend=backend) if backend else module
    found: dict[str, Any] = {}
    for step in range(STEPS):
        x, grad = (each.split(case.parts)[place].to(device, case.data) for each in case.batch(step))
        if case.order is not torch.contiguous_format:
            x, grad = x.contiguous(memory_format=case.order), grad.contiguous(memory_format=case.order)
        x.requires_grad_()
        module.zero_grad()
        y = run(x)
        y.backward(grad)
        found = {"y": y.detach(), "dX": x.grad, **{name: each.grad for name, each in module.named_parameters()}}
    return {name: each.cpu() for name, each in {**found, **dict(module.named_buffers())}.items()}


def of_case(case: Case, groups: dict[int, Any], rank: int, device: str, **how: Any) -> tuple[Results, Results] | None:
    """Twice, from the beginning."""
    size = len(case.parts)
    if rank >= size:
        return None
    made = [SyncBatchNorm.convert_sync_batchnorm(case.module(), groups[size], **how).to(device) for _ in range(2)]
    assert type(made[0]) is SyncBatchNorm
    one, other = (steps(case, each, rank, device) for each in made)
    return one, other


def second_derivatives(rank: int, device: str) -> Results:
    case = CASES["compiled"]
    module = SyncBatchNorm.convert_sync_batchnorm(case.module(F64)).to(device)
    x, grad = (each.split(case.parts)[rank].to(device) for each in case.batch(0))
    x.requires_grad_()
    (dx,) = torch.autograd.grad(module(x), x, grad, create_graph=True)
    weight: Any = module.weight
    twice = torch.autograd.grad(dx.square().sum(), (x, weight))
    return {"dX": twice[0].cpu(), "weight": twice[1].cpu()}


# --- models -----------------------------------------------------------------------------------------------------------


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
        torch.nn.Conv2d(8, 4, 3), torch.nn.BatchNorm2d(4),
    )  # fmt: skip
    return made.double()


def images(rows: int = 8) -> torch.Tensor:
    return values(3, rows, 3, 6, 6)


def loss(y: torch.Tensor) -> torch.Tensor:
    return (y.sin() + 1).square().mean()


def replicated(made: torch.nn.Module) -> Any:
    return DistributedDataParallel(made)


WAYS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "DDP": lambda made: replicated(SyncBatchNorm.convert_sync_batchnorm(made)),
    "DDP of an accelerated model": lambda made: replicated(accelerated(made)),
    "FSDP2": lambda made: fully_shard(SyncBatchNorm.convert_sync_batchnorm(made)),
}


def accelerated(made: torch.nn.Module) -> torch.nn.Module:
    """A model that has PyTorch's SyncBatchNorm, which gradkern's takes the place of."""
    made = torch.nn.SyncBatchNorm.convert_sync_batchnorm(made)
    assert gradkern.torch.accelerate(made).replaced == {"1": "SyncBatchNorm", "4": "SyncBatchNorm"}
    return made


def of_way(make: Callable[[torch.nn.Module], Any], rank: int, size: int, device: str) -> tuple[Results, int]:
    """The gradients of the second step, as the first is PyTorch's own, and how many of its calls gradkern answered."""
    made, before = make(model().to(device)), 0
    mine = images().chunk(size)[rank].to(device)
    for _ in range(2):
        before = gradkern.torch.report().taken
        made.zero_grad()
        loss(made(mine)).backward()
    grads: Any = {name.removeprefix("module."): each.grad for name, each in made.named_parameters()}
    whole = {name: each.full_tensor() if hasattr(each, "full_tensor") else each for name, each in grads.items()}
    return {name: each.cpu().clone() for name, each in whole.items()}, gradkern.torch.report().taken - before


# --- on GPUs ----------------------------------------------------------------------------------------------------------


WITHOUT_WAITING: dict[str, dict[str, Any]] = {
    "waits for nothing": {},
    "waits for no average": {"momentum": None},
    "waits for nothing, symmetric": {"symmetric_memory": True},
    "waits for nothing, collectives": {"symmetric_memory": False},
}


def without_waiting(options: dict[str, Any]) -> Results:
    """Gradients of a step in which waiting for the device is an error, and of the same step as a replayed graph."""
    module: Any = SyncBatchNorm(16, **options).cuda()
    x, grad = (values(dist.get_rank() + n, 4, 16, 5, 5).float().cuda() for n in range(2))
    x.requires_grad_()

    def step() -> torch.Tensor:
        return torch.autograd.grad(module(x), x, grad)[0]

    for _ in range(3):
        step()
    with no_synchronization():
        eager = step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step()
    graph.replay()
    torch.cuda.synchronize()
    return {"eager": eager.cpu(), "captured": captured.cpu()}


def kernels_after_tune(device: str) -> list[str]:
    """What this process runs for calls that `tune` has searched for, in whichever process."""
    made = replicated(SyncBatchNorm.convert_sync_batchnorm(model().float().to(device)))
    x = images().float().to(device)
    with gradkern.torch.enabled(devices=device, min_bytes=0, only_faster=False):
        gradkern.torch.tune(lambda: loss(made(x)).backward())
        before = gradkern.torch.report().taken
        loss(made(x)).backward()
        assert gradkern.torch.report().taken == before + 2
    grad = torch.randn(8, 4, 4, 4, device=device)
    hidden, weight = torch.randn(8, 8, 6, 6, device=device), torch.randn(4, 8, 3, 3, device=device)
    plan: Any = gradkern.prepare("ConvGrad", grad, hidden, weight, outputs=["dX", "dW"])
    return [plan.kernel]


class Found(dict[str, Any]):
    """What a process has found, which says on standard error when it found it: where it hangs, one sees behind what."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank, self._start = rank, time.monotonic()

    def __setitem__(self, name: str, value: Any) -> None:
        print(f"process {self._rank}: {name}, {time.monotonic() - self._start:.1f} s", file=sys.stderr, flush=True)
        super().__setitem__(name, value)


def main(rank: int, size: int, folder: Path, device: str = "cpu") -> None:
    torch.set_num_threads(1)
    more: Any = {"device_id": torch.device(device, rank)} if device == "cuda" else {}
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=size, **more)
    groups = {n: dist.new_group(list(range(n))) for n in range(1, size + 1)}
    found = Found(rank)
    found["by NVLink"] = reads_by_nvlink(dist.group.WORLD, torch.device(device, rank))
    if device == "cuda":  # before processes have symmetric memory in groups that not all of them are in
        for name, options in WITHOUT_WAITING.items():
            found[name] = without_waiting(options)
    for name, case in CASES.items():
        if len(case.parts) <= size:
            found[name] = of_case(case, groups, rank, device)
    for name in SYMMETRIC:
        for way in (True, False):
            found[f"{name}, {way}"] = of_case(CASES[name], groups, rank, device, symmetric_memory=way)
    if size == 4:
        found["second derivatives"] = second_derivatives(rank, device)
        halves = [dist.new_group(each) for each in ([0, 1], [2, 3])]
        case = CASES["two, float32"]
        module = SyncBatchNorm.convert_sync_batchnorm(case.module(), halves[rank // 2]).to(device)
        found["two groups at once"] = steps(case, module, rank % 2, device)
    with gradkern.torch.enabled(ops="conv", devices=device, min_bytes=0, plan="now"):
        for way, make in WAYS.items():
            found[way] = of_way(make, rank, size, device)
    if device == "cuda":
        found["kernels"] = kernels_after_tune(device)
    torch.save(dict(found), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    processes.run(main, int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
