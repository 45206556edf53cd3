"""Norms that are part of nothing that gradkern computes as one operator: users look for them in the report."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import calls
from gradkern.torch.compile_backend.dynamo_graph.norms import norms, others

__all__ = ["candidates", "report"]

_NORMS: dict[Any, str] = {
    **dict.fromkeys((functional.group_norm, torch.group_norm), "group_norm"),
    torch.batch_norm: "batch_norm",
    torch.instance_norm: "instance_norm",
}
"""By functions."""


def candidates(graph: fx.Graph) -> dict[fx.Node, tuple[str, str]]:
    """The norms of a graph before anything is rewritten, by their last call: what each is, and why it is left if no
    pass reports it.
    """
    found = {each.end: (each.kind, each.reason or "no addition comes before it") for each in norms(graph)}
    found |= {node: ("norm in other words", reason) for node, reason in others(graph).items()}
    return found | {node: (_NORMS[node.target], "no fusion has it") for node in calls(graph, *_NORMS)}


def report(norms: dict[fx.Node, tuple[str, str]], fusion: Fusion) -> None:
    """Report those that are left and that no pass has reported."""
    for node, (name, reason) in norms.items():
        if not node._erased and node not in fusion.reported:
            fusion.unmatched(name, node, reason)
