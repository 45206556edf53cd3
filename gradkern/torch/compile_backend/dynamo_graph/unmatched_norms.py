"""Norms that are part of nothing that gradkern computes as one operator: users look for them in the report."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import spelled_out
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion

__all__ = ["candidates", "report"]

_NORMS: dict[Any, str] = {
    **dict.fromkeys((functional.layer_norm, torch.layer_norm), "layer_norm"),
    **dict.fromkeys((functional.rms_norm, torch.rms_norm), "rms_norm"),
    **dict.fromkeys((functional.group_norm, torch.group_norm), "group_norm"),
    **dict.fromkeys((torch.rsqrt, "rsqrt"), "norm in other words"),
    torch.batch_norm: "batch_norm",
    torch.instance_norm: "instance_norm",
}
"""By functions, and the names of methods."""


def candidates(graph: fx.Graph) -> dict[fx.Node, str]:
    """The norms of a graph before anything is rewritten, with their names; the last call stands for one spelled out."""
    whole: dict[Any, Any] = {node: each.nodes[-1] for each in spelled_out.rms_norms(graph) for node in each.nodes}
    calls: list[Any] = [
        each for each in graph.nodes if each.op in ("call_function", "call_method") and each.target in _NORMS
    ]
    return {whole.get(each, each): "rms_norm" if each in whole else _NORMS[each.target] for each in calls}


def report(norms: dict[fx.Node, str], fusion: Fusion) -> None:
    """Report those that are left and that no pass has reported."""
    for node, name in norms.items():
        if not node._erased and node not in fusion.reported:
            fusion.unmatched(name, node)
