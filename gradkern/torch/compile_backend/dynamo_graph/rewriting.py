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
    depthwise_conv,
    instance_norm,
    linear_gelu,
    unmatched_norms,
)
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.gates import Gates

__all__ = ["rewrite"]


def rewrite(graph_module: fx.GraphModule, gates: Gates) -> None:
    """Rewrite it in place."""
    findings.note_graph()
    for each in graph_module.modules():  # regions that are checkpointed are modules of their own
        if isinstance(each, fx.GraphModule):
            # Dynamo calls a backend with the modes that are in force where the graph begins
            fusion = Fusion(gates, each.graph, torch.is_grad_enabled() if each is graph_module else None)
            norms = unmatched_norms.candidates(each.graph)
            instance_norm.fuse(each.graph, fusion, channels_last_3d.arrange(each.graph, fusion))
            passes = batch_norm, add_norm, linear_gelu, depthwise_conv, causal_attention
            for rewriting in passes:
                rewriting.fuse(each.graph, fusion)
            counters.fuse(each.graph, fusion)
            unmatched_norms.report(norms, fusion)
            each.recompile()
