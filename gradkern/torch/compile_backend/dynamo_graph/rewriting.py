"""Stage 1: all that is rewritten in the graph that Dynamo has traced."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph import (
    add_norm,
    batch_norm,
    causal_attention,
    channels_last_3d,
    counters,
    cross_entropy,
    depthwise_conv,
    embedding,
    group_norm,
    instance_norm,
    linear_gelu,
    unmatched_norms,
    windows,
)
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.gates import Gates

__all__ = ["rewrite"]


_PASSES = (
    batch_norm.fuse,
    group_norm.fuse,
    add_norm.fuse,
    linear_gelu.fuse,
    depthwise_conv.fuse,
    causal_attention.fuse,
    cross_entropy.fuse,
    embedding.fuse,
    windows.fuse,
    counters.fuse,
)
"""In this order. A pass finds what may be one operator, and Fusion.take proves, replaces and reports it."""


def rewrite(graph_module: fx.GraphModule, gates: Gates) -> None:
    """Rewrite it in place."""
    findings.note_graph()
    for each in graph_module.modules():  # regions that are checkpointed are modules of their own
        if isinstance(each, fx.GraphModule):
            # Dynamo calls a backend with the modes that are in force where the graph begins
            fusion = Fusion(gates, each.graph, torch.is_grad_enabled() if each is graph_module else None)
            candidates = unmatched_norms.candidates(each.graph)
            instance_norm.fuse(each.graph, fusion, channels_last_3d.arrange(each.graph, fusion))
            for fuse in _PASSES:
                fuse(each.graph, fusion)
            unmatched_norms.report(candidates, fusion)
            each.recompile()
