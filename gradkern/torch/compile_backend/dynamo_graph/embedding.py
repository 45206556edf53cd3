"""Stage 1: F.embedding, for its gradient. Inductor would add with atomics, in another order each run.

The forward pass stays PyTorch's, as Inductor fuses it with what reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, value
from gradkern.torch.compile_backend.dynamo_graph.windows import with_gradient
from gradkern.torch.compile_backend.operators import unregistered

__all__ = ["fuse"]

_NAME = "embedding"


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; embeddings that cannot be are reported."""
    for node in calls(graph, functional.embedding):
        fusion.take(_site(node))


def _site(node: fx.Node) -> Site:
    names = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False}
    call = arguments(node, "input", "weight", **names)
    indices, weight, y = value(call["input"]), value(call["weight"]), value(node)
    reason = _reason(indices, weight, y)
    if not reason and (call["max_norm"] is not None or call["scale_grad_by_freq"] or call["sparse"]):
        reason = "max_norm, scale_grad_by_freq and sparse are PyTorch's"
    if reason or weight is None or y is None:
        return Site(_NAME, node, y, reason=reason)
    place = call["padding_idx"]
    padding = () if place is None else (("padding_idx", place if place >= 0 else int(place + weight.shape[0])),)

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        return [with_gradient(graph, node, call["weight"], call["input"], "GatherGrad", repr(padding))]

    return Site(_NAME, node, y, nodes=(node,), make=make, results={node: y})


def _reason(indices: torch.Tensor | None, weight: torch.Tensor | None, y: torch.Tensor | None) -> str:
    """Why gradkern does not compute the gradient; "" if it does."""
    if indices is None or weight is None or y is None:
        return "an argument is no tensor of the graph"
    if weight.device.type != "cuda" and not _ON_EVERY_DEVICE:
        return "it is not on a GPU"
    if not weight.requires_grad or not y.requires_grad:
        return "no gradient of it is wanted"
    return unregistered("GatherGrad", weight.device, T=weight.dtype, I=indices.dtype)


_ON_EVERY_DEVICE = False  # for tests: on a CPU PyTorch's are faster
