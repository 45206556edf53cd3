"""Stage 1: calls of F.gelu, and GELU that a model spells out, as transformers' GPT-2 does.

What no pass takes stays as the model wrote it, with its roundings. An operator rounds once, at the end; of 16 bits, a
GELU in other words rounds after every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls

__all__ = ["Gelu", "gelus"]


class Gelu(NamedTuple):
    """The calls, whose results nothing else uses but the last one's, what GELU is computed of, and F.gelu's option."""

    nodes: tuple[fx.Node, ...]
    x: Any
    approximate: str


def _new_gelu(x: Any) -> Any:
    """NewGELUActivation of transformers 5."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _fast_gelu(x: Any) -> Any:
    """FastGELUActivation of transformers 5."""
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def _python_gelu(x: Any) -> Any:
    """GELUActivation(use_gelu_python=True) of transformers 5."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def _matcher(function: Callable[..., Any]) -> SubgraphMatcher:
    return SubgraphMatcher(fx.symbolic_trace(function).graph)


_SPELLED = [(_matcher(_new_gelu), "tanh"), (_matcher(_fast_gelu), "tanh"), (_matcher(_python_gelu), "none")]


def gelus(graph: fx.Graph) -> Iterator[Gelu]:
    for node in calls(graph, functional.gelu):
        call = arguments(node, "input", approximate="none")
        yield Gelu((node,), call["input"], call["approximate"])
    for matcher, approximate in _SPELLED:
        inner = [each for each in matcher.pattern.nodes if each.op not in ("placeholder", "output")]
        x = next(each for each in matcher.pattern.nodes if each.op == "placeholder")
        for found in matcher.match(graph):
            yield Gelu(tuple(sorted(found.nodes_map[each] for each in inner)), found.nodes_map[x], approximate)
