"""Stage 1: an addition of two tensors and the layer norm or RMSNorm of the sum, as one operator."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import called, memory_format, same_kind, value
from gradkern.torch.compile_backend.dynamo_graph.norms import Norm, norms
from gradkern.torch.compile_backend.operators.add_norm import LAYER_NORM, RMS_NORM
from gradkern.torch.compile_backend.operators.definition import unregistered
from gradkern.torch.operators import new_like

__all__ = ["fuse"]


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; norms of sums that cannot be are reported."""
    for norm in norms(graph):
        if called(norm.x) in ("add", "add_"):
            fusion.take(_site(norm))


def _site(norm: Norm) -> Site:
    addition, total = norm.x, value(norm.x)
    name = f"add + {norm.kind}"
    reason = _reason(norm)
    if reason or total is None:
        return Site(name, norm.end, total, reason=reason)
    like = new_like(value(addition.args[0]))  # pyright: ignore[reportArgumentType]

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        weight = norm.weight if norm.weight is not None else _ones(graph, total, value(norm.bias))
        parameters = (weight, norm.bias) if norm.kind == "layer_norm" else (weight,)
        target = LAYER_NORM if norm.kind == "layer_norm" else RMS_NORM
        made = graph.call_function(target, (*addition.args, *parameters, norm.eps))
        return [graph.call_function(operator.getitem, (made, place)) for place in (0, 1)]

    return Site(
        name,
        norm.end,
        total,
        nodes=(addition, *norm.nodes),
        make=make,
        results={norm.end: like, addition: like},
        place=_place(norm),
        reads=(addition, *addition.args, norm.weight, norm.bias),
        saves=(addition, norm.weight),
        doubt=_doubt(norm),
    )


def _place(norm: Norm) -> fx.Node:
    """The norm's last call, since its weight may be computed before that, unless others use the sum earlier."""
    earlier = [each for each in norm.x.users if each not in norm.nodes and each < norm.end]
    return norm.x if earlier else norm.end


def _ones(graph: fx.Graph, x: torch.Tensor, bias: torch.Tensor | None) -> fx.Node:
    dtype = _wide(x) if bias is None else bias.dtype
    return graph.call_function(torch.full, ((x.shape[-1],), 1.0), {"dtype": dtype, "device": x.device})


def _wide(x: torch.Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _doubt(norm: Norm) -> str:
    scaled = norm.weight is None and any(each.target in (operator.mul, torch.mul) for each in norm.end.users)
    return "what multiplies the norm is another pass, and the two were not measured" if scaled else ""


def _reason(norm: Norm) -> str:
    """Why the two are nothing that gradkern computes as one; "" if they are."""
    addition: Any = norm.x
    total, y, weight, bias = (value(each) for each in (addition, norm.end, norm.weight, norm.bias))
    if called(addition) == "add_":
        return "the addition writes what is added to"
    if total is None or addition.kwargs or not all(same_kind(value(each), total) for each in addition.args):
        return "it adds no two tensors of one shape and type"
    if norm.reason or y is None:
        return norm.reason or "its result is no tensor of the graph"
    if not isinstance(norm.eps, float):
        return "its epsilon is no constant"
    if not y.requires_grad:
        return "no gradient of it is wanted"
    if y.dtype != total.dtype:
        return "autocast computes it in another type"
    if norm.kind == "rms_norm" and memory_format(total) is None:  # eager's strides depend on the device
        return "the sum is not contiguous"
    if bias is not None and weight is not None and bias.dtype != weight.dtype:
        return "weight and bias are of two types"
    types = {each.dtype for each in (weight, bias) if each is not None}
    return unregistered("SkipLayerNormalization", total.device, T=total.dtype, V=(types or {_wide(total)}).pop())
