"""Stage 1: an addition of two tensors and F.layer_norm or F.rms_norm of the sum, as one operator.

RMSNorm may be spelled out, too (spelled_out.py).
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import spelled_out
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import (
    arguments,
    called,
    calls,
    same_kind,
    value,
    written_between,
)
from gradkern.torch.compile_backend.operators.add_norm import LAYER_NORM, RMS_NORM
from gradkern.torch.compile_backend.operators.definition import unregistered

__all__ = ["fuse"]


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; norms of sums that cannot be are reported."""
    for node in calls(graph, functional.layer_norm, torch.layer_norm):
        call = arguments(node, "input", "normalized_shape", weight=None, bias=None, eps=1e-5)
        _fuse(graph, fusion, "add + layer_norm", (node,), call)
    for node in calls(graph, functional.rms_norm, torch.rms_norm):
        call = arguments(node, "input", "normalized_shape", weight=None, eps=None)
        _fuse(graph, fusion, "add + rms_norm", (node,), call)
    for each in spelled_out.rms_norms(graph):
        x, weight, eps = (each.argument(name) for name in ("x", "weight", "eps"))
        call = {"input": x, "normalized_shape": (None,), "weight": weight, "eps": eps}
        _fuse(graph, fusion, "add + rms_norm", each.nodes, call)


def _fuse(graph: fx.Graph, fusion: Fusion, name: str, nodes: tuple[fx.Node, ...], call: dict[str, Any]) -> None:
    """nodes: the norm, or the calls that spell it out"""
    addition, node = call["input"], nodes[-1]
    if called(addition) not in ("add", "add_"):
        return
    total = value(addition)
    reason = _reason(node, addition, call) or fusion.against(name, total)
    if reason:
        fusion.left(name, node, total, reason)
        return
    fusion.taken(name, node, total)
    parameters = (call["weight"], call["eps"]) if "bias" not in call else (call["weight"], call["bias"], call["eps"])
    with graph.inserting_before(addition):
        made = graph.call_function(RMS_NORM if "bias" not in call else LAYER_NORM, (*addition.args, *parameters))
        y, total = (graph.call_function(operator.getitem, (made, place)) for place in (0, 1))
    y.meta, total.meta = dict(node.meta), dict(addition.meta)
    node.replace_all_uses_with(y)
    for each in reversed(nodes):
        graph.erase_node(each)
    addition.replace_all_uses_with(total)
    graph.erase_node(addition)


def _reason(node: fx.Node, addition: fx.Node, call: dict[str, Any]) -> str:
    """Why the two are nothing that gradkern computes as one; "" if they are."""
    total, y, weight, bias = (value(each) for each in (addition, node, call["weight"], call.get("bias")))
    if called(addition) == "add_":
        return "the addition writes what is added to"
    if total is None or addition.kwargs or not all(same_kind(value(each), total) for each in addition.args):
        return "it adds no two tensors of one shape and type"
    if len(call["normalized_shape"]) != 1:
        return "it normalizes over several axes"
    if weight is None or y is None:
        return "it has no weight"
    if not isinstance(call["eps"], float):
        return "its epsilon is no constant"
    if not y.requires_grad:
        return "no gradient of it is wanted"
    if y.dtype != total.dtype:
        return "autocast computes it in another type"
    if bias is not None and bias.dtype != weight.dtype:
        return "weight and bias are of two types"
    parameters = [each for each in (call["weight"], call.get("bias")) if each is not None]
    if any(_later(each, addition) for each in parameters):
        return "its weight is computed between the two"
    if written_between(addition, node, addition, *parameters):
        return "the sum or the weight is written in place before"
    return unregistered("SkipLayerNormalization", total.device, T=total.dtype, V=weight.dtype)


def _later(node: fx.Node, than: fx.Node) -> bool:
    """Whether it is computed after the other."""
    return node.op not in ("placeholder", "get_attr") and than < node
