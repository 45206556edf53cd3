"""Two models of train_models.py on several GPUs: ResNet-50 with synchronised batch norm under DistributedDataParallel,
and a Llama under FSDP2; in eager mode, by torch.compile and by gradkern's backend, compiled by every process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from distributed_peers import PEERS
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.distributed.fsdp import (  # pyright: ignore[reportMissingImports]
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]
from train_models import MODELS, TINY, dropouts

import gradkern.torch

__all__ = ["COLUMNS", "TRAINED", "training_steps"]

COLUMNS: dict[str, dict[str, Any] | None] = {"eager": None, "compile": {}, "gradkern": {"backend": "gradkern"}}
"""What torch.compile is given; None: nothing is compiled."""
Step = Callable[[], Any]


def training_steps(bench: Any, name: str) -> tuple[dict[str, Step], dict[str, dict[str, float]]]:
    """The whole step of a model by each column, warm, and of each the seconds of its first step and the loss of its
    fifth, before which all columns have trained the same.
    """
    steps: dict[str, Step] = {}
    found: dict[str, dict[str, float]] = {}
    for column, compiled in COLUMNS.items():
        steps[column] = step = _step(bench, name, column, compiled)
        start = time.perf_counter()
        step()
        bench.wait()
        seconds = time.perf_counter() - start
        if bench.rank == 0:
            print(f"{name}, {column}: first step {seconds:.1f} s", file=sys.stderr, flush=True)
        for _ in range(3):
            step()
        found[column] = {"first_seconds": seconds, "loss": float(step())}
        if column == "gradkern":
            gradkern.torch.tune(step)
    return steps, found


def _step(bench: Any, name: str, column: str, compiled: dict[str, Any] | None) -> Step:
    record = (TINY if bench.options.tiny else MODELS)[name]
    torch.manual_seed(bench.rank)
    batch = {key: each.to(bench.device) for key, each in record.make_batch().items()}
    torch.manual_seed(0)
    model = record.make()
    dropouts(model, 0.0)
    model, autocast = TRAINED[name](bench, model.to(bench.device), column, compiled)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=autocast):
            loss = record.loss(model, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _replicated(bench: Any, model: nn.Module, column: str, compiled: dict[str, Any] | None) -> tuple[Any, bool]:
    """Under DistributedDataParallel, at whose buckets Dynamo splits the graph, with synchronised batch norms."""
    norms = "gradkern" if column == "gradkern" else "torch" if bench.cuda else "local"  # PyTorch's needs GPUs
    replicated = DistributedDataParallel(PEERS[norms](model), device_ids=[bench.device] if bench.cuda else None)
    return (replicated if compiled is None else torch.compile(replicated, **compiled)), bench.cuda


def _sharded(bench: Any, model: Any, column: str, compiled: dict[str, Any] | None) -> tuple[Any, bool]:
    """By FSDP2, parameters gathered in bfloat16; layers are compiled before they are sharded, as TorchTitan does."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        if compiled is not None:
            layer.compile(**compiled)
        fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy), False


TRAINED = {"ResNet-50": _replicated, "Llama 12x768": _sharded}
"""How each model is spread over the processes."""
