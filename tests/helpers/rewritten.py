"""Models with the graph that the first stage of backend="gradkern" makes, and a step of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.debugging import aot_eager

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

__all__ = ["EXACT", "compiled", "reasons", "step"]

Tensor = torch.Tensor
EXACT: Any = {"rtol": 1e-9, "atol": 1e-10}
"""For `torch.testing.assert_close` of steps in float64."""


def step(model: nn.Module, run: Any, x: Tensor, half: bool = False, any_batch: bool = False) -> dict[str, Tensor]:
    """The results and the gradients."""
    model.zero_grad()
    leaf = x.detach().clone().requires_grad_()
    if any_batch:
        torch._dynamo.mark_dynamic(leaf, 0)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        results = run(leaf)
    results = results if isinstance(results, tuple) else (results,)
    torch.stack([each.double().sin().sum() for each in results]).sum().backward()
    found = {f"d {name}": each.grad for name, each in model.named_parameters()} | {"dx": leaf.grad}
    found |= {f"y{place}": each.detach() for place, each in enumerate(results)}
    return {name: each for name, each in found.items() if each is not None}


def compiled(model: nn.Module, seen: Callable[[fx.Graph], Iterable[Any]]) -> tuple[Any, list[Any]]:
    """The model with the first stage's graph, and a list that gets what is seen in it."""
    found: list[Any] = []

    def rewritten(graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of(True))
        found.extend(seen(graph_module.graph))
        return aot_eager(graph_module, inputs)

    return torch.compile(model, backend=rewritten, fullgraph=True), found


def reasons(name: str) -> list[str]:
    """Why fusions whose names begin like this are not made; "" for those that are."""
    return [each.reason for each in findings.findings() if each.fusion.startswith(name)]
