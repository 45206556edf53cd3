"""Stage 1: all that is rewritten in the graph that Dynamo has traced."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph import (
    add_norm,
    batch_first_attention,
    batch_norm,
    causal_attention,
    channels_last_3d,
    contiguous_rows,
    cross_entropy,
    depthwise_conv,
    group_norm,
    instance_norm,
    linear_gelu,
    padded_logits,
    windows,
)
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import calls, value
from gradkern.torch.compile_backend.dynamo_graph.norms import norms, others
from gradkern.torch.compile_backend.gates import Gates

_PASSES = (
    batch_first_attention.arrange,
    contiguous_rows.arrange,
    batch_norm.fuse,
    group_norm.fuse,
    add_norm.fuse,
    linear_gelu.fuse,
    depthwise_conv.fuse,
    causal_attention.fuse,
    cross_entropy.fuse,
    padded_logits.fuse,
    windows.fuse,
    batch_norm.count,
)
"""In this order. A pass finds what may be one operator, and Fusion.take proves, replaces and reports it."""


_NORMS: dict[Any, str] = {
    **dict.fromkeys((functional.group_norm, torch.group_norm), "group_norm"),
    torch.batch_norm: "batch_norm",
    torch.instance_norm: "instance_norm",
}
"""By functions."""


def _candidates(graph: fx.Graph) -> dict[fx.Node, tuple[str, str]]:
    """The norms of a graph before anything is rewritten, by their last call: what each is, and why it is left if no
    pass reports it.
    """
    found = {each.end: (each.kind, each.reason or "no addition comes before it") for each in norms(graph)}
    found |= {node: ("norm in other words", reason) for node, reason in others(graph).items()}
    return found | {node: (_NORMS[node.target], "no fusion has it") for node in calls(graph, *_NORMS)}


def rewrite(graph_module: fx.GraphModule, gates: Gates) -> None:
    """Rewrite it in place."""
    findings.note_graph()
    for each in graph_module.modules():  # regions that are checkpointed are modules of their own
        if isinstance(each, fx.GraphModule):
            # Dynamo calls a backend with the modes that are in force where the graph begins
            fusion = Fusion(gates, each.graph, torch.is_grad_enabled() if each is graph_module else None)
            candidates = _candidates(each.graph)
            instance_norm.fuse(each.graph, fusion, channels_last_3d.arrange(each.graph, fusion))
            for fuse in _PASSES:
                fuse(each.graph, fusion)
            for node, (name, reason) in candidates.items():  # those that are left and that no pass has reported
                if not node._erased and node not in fusion.reported:
                    fusion.report(name, node, value(node), reason, matched=False)
            each.recompile()
