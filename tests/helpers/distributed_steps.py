"""What processes do under gloo, for test_distributed.py, which runs it as a script.

python distributed_steps.py SIZE FOLDER: each of SIZE processes leaves a file of gradients by case in the folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import gradkern.torch
from gradkern.cuda.margin import sm_margin
from gradkern.torch.overrides import step_comparison, switch
from helpers import processes

ROWS, TOKENS, WIDTH = 4, 6, 8


class Block(torch.nn.Module):
    """Tokens: a norm, a linear layer with its GELU, another norm, and a depthwise convolution over the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.linear = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
        self.last = torch.nn.RMSNorm(WIDTH)
        self.conv = torch.nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.last(self.linear(self.norm(x)))
        return self.conv(x.transpose(1, 2))


def block() -> Block:
    torch.manual_seed(0)
    return Block().double()


def batch() -> torch.Tensor:
    return torch.randn(ROWS, TOKENS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def loss(y: torch.Tensor) -> torch.Tensor:
    return (y.sin() + 1).square().mean()


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Whole, whoever holds which part; by the names of `Block`."""
    found = {}
    for name, each in model.named_parameters():
        grad: Any = each.grad
        found[name.removeprefix("module.")] = (grad.full_tensor() if isinstance(grad, DTensor) else grad).clone()
    return found


def replicated(model: Block, _: Any) -> torch.nn.Module:
    return DistributedDataParallel(model)


def sharded(model: Block, mesh: Any) -> Any:
    return fully_shard(model, mesh=mesh)


def accelerated(model: Block, mesh: Any) -> Any:
    assert set(gradkern.torch.accelerate(model).replaced) == {"linear.0", "conv"}
    return fully_shard(model, mesh=mesh)


BY_ROWS: dict[str, Callable[[Block, Any], torch.nn.Module]] = {
    "DDP": replicated,
    "FSDP2": sharded,
    "FSDP2 of an accelerated model": accelerated,
}


def of_rows(make: Callable[[Block, Any], torch.nn.Module], mesh: Any, rank: int, size: int) -> Any:
    model = make(block(), mesh)
    mine = batch().chunk(size)[rank]

    def step() -> dict[str, torch.Tensor]:
        model.zero_grad()
        loss(model(mine)).backward()
        return gradients(model)

    return twice(step)


def of_tokens(mesh: Any, rank: int, size: int) -> Any:
    """A norm whose input is sharded along the tokens, as under sequence parallelism."""
    model = parallelize_module(block().norm, mesh, SequenceParallel())
    mine = batch().chunk(size, dim=1)[rank]

    def step() -> dict[str, torch.Tensor]:
        model.zero_grad()
        y = model(mine)
        total = loss(y.full_tensor()) if isinstance(y, DTensor) else loss(y)
        total.backward()
        return gradients(model)

    return twice(step)


def twice(step: Callable[[], dict[str, torch.Tensor]]) -> Any:
    """The second step's gradients, as the first is PyTorch's own, and how many of its calls gradkern answered."""
    step()
    before = gradkern.torch.report().taken
    return step(), gradkern.torch.report().taken - before


def after_repeats(rank: int) -> tuple[list[str], int]:
    """What `tune` leaves to PyTorch, and how many steps it has run, where every call that gradkern takes makes steps of
    the first process shorter, and the others' longer.
    """
    model, seconds, steps = DistributedDataParallel(block()), 0.0, 0

    def step() -> None:
        nonlocal seconds, steps
        before = gradkern.torch.report().taken
        loss(model(batch())).backward()
        taken = gradkern.torch.report().taken - before
        seconds, steps = seconds + 10 + (taken if rank else -taken), steps + 1

    step_comparison.perf_counter, switch.compare = lambda: seconds, lambda *_: None  # by no other time
    gradkern.torch.forget()
    gradkern.torch.tune(step, repeats=1)
    return sorted(each.translation.name for each in switch._kernels() if each.inactive), steps


def main(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
        results = {name: of_rows(make, mesh, rank, size) for name, make in BY_ROWS.items()}
        results["sequence parallel"] = of_tokens(mesh, rank, size)
    with gradkern.torch.enabled(devices="cpu", min_bytes=0):
        results["repeats"] = after_repeats(rank)
    results["margin"] = sm_margin(132)
    torch.save(results, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    processes.run(main, int(sys.argv[1]), Path(sys.argv[2]))
