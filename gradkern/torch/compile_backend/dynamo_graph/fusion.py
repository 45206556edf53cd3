"""The checks of passes over Dynamo's graph before they rewrite a place."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph.graph import value, where
from gradkern.torch.compile_backend.dynamo_graph.proof import Proof
from gradkern.torch.compile_backend.gates import Gates

__all__ = ["Fusion"]

_SHORT = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}


class Fusion:
    """Of one graph: decides by the gates, proves, and reports. grad: as Proof has it."""

    def __init__(self, gates: Gates, graph: fx.Graph, grad: bool | None) -> None:
        self._gates, self.proof = gates, Proof(graph, grad)
        self.reported: set[fx.Node] = set()

    def against(self, name: str, x: torch.Tensor | None, doubt: str = "") -> str:
        """Why what has this input is not fused; "" where it may be. doubt: why it may be only on request."""
        if x is None:
            return "its input is no tensor of the graph"
        return self._gates.reason(name, x, doubt)

    def taken(self, name: str, node: fx.Node, x: torch.Tensor | None) -> None:
        """Report a fusion that begins with this call."""
        self.left(name, node, x, "")

    def left(self, name: str, node: fx.Node, x: torch.Tensor | None, reason: str) -> None:
        """Report what is not."""
        self.reported.add(node)
        findings.add(findings.Finding(name, where(node), _text(x), reason))

    def unmatched(self, name: str, node: fx.Node) -> None:
        """Report a norm that is part of nothing that could be fused."""
        findings.add(findings.Finding(name, where(node), _text(value(node)), "no fusion has it", matched=False))


def _text(x: torch.Tensor | None) -> str:
    return "" if x is None else f"{_SHORT.get(x.dtype, x.dtype)}[{', '.join(map(str, x.shape))}]"
