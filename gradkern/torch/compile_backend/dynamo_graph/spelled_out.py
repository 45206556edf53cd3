"""Stage 1: RMSNorm and tanh GELU that a model spells out, as transformers' Llama and GPT-2 do.

They are only recognised here: the passes that take norms and GELUs read them as if the model had called PyTorch's
functions, and what they leave stays as the model wrote it, with its roundings. An operator rounds once, at the end;
of 16 bits, a spelled-out norm rounds before it multiplies by the weight, too, and a spelled-out GELU after every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.graph import value

__all__ = ["Spelled", "gelus", "rms_norms"]


def _rms_norm(x: Any, weight: Any, eps: Any, wide: Any, dtype: Any) -> Any:
    """LlamaRMSNorm of transformers 5, and those of most models since."""
    hidden = x.to(wide)
    variance = hidden.pow(2).mean(-1, keepdim=True)
    hidden = hidden * torch.rsqrt(variance + eps)
    return weight * hidden.to(dtype)


def _gelu(x: Any) -> Any:
    """NewGELUActivation of transformers 5."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _matcher(function: Callable[..., Any]) -> SubgraphMatcher:
    return SubgraphMatcher(fx.symbolic_trace(function).graph)


_RMS_NORM, _GELU = _matcher(_rms_norm), _matcher(_gelu)


class Spelled(NamedTuple):
    """The calls, whose results nothing else uses but the last one's, and the pattern that they match one by one."""

    nodes: tuple[fx.Node, ...]
    pattern: tuple[fx.Node, ...]

    def argument(self, name: str) -> Any:
        """What the graph has now in the place of the pattern's parameter."""
        for ours, theirs in zip(self.nodes, self.pattern, strict=True):
            for mine, argument in zip(ours.args, theirs.args, strict=True):
                if isinstance(argument, fx.Node) and argument.op == "placeholder" and argument.target == name:
                    return mine
        raise KeyError(name)


def rms_norms(graph: fx.Graph) -> list[Spelled]:
    """Those along the last axis whose result has the type of their input, in the order of the program."""
    return [each for each in _found(graph, _RMS_NORM) if _is_rms_norm(each)]


def gelus(graph: fx.Graph) -> list[Spelled]:
    """In the order of the program."""
    return _found(graph, _GELU)


def _found(graph: fx.Graph, matcher: SubgraphMatcher) -> list[Spelled]:
    pattern = tuple(each for each in matcher.pattern.nodes if each.op not in ("placeholder", "output"))
    return [Spelled(tuple(each.nodes_map[one] for one in pattern), pattern) for each in matcher.match(graph)]


def _is_rms_norm(found: Spelled) -> bool:
    """Whether types and shapes are those of torch.nn.functional.rms_norm."""
    x, weight = value(found.argument("x")), value(found.argument("weight"))
    return (
        x is not None
        and weight is not None
        and found.argument("wide") is torch.promote_types(x.dtype, torch.float32)
        and found.argument("dtype") is x.dtype is weight.dtype
        and weight.shape == x.shape[-1:]
    )
