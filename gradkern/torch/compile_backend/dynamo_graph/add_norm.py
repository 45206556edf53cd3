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
    memory_format,
    replace,
    same_kind,
    value,
)
from gradkern.torch.compile_backend.operators.add_norm import LAYER_NORM, RMS_NORM
from gradkern.torch.compile_backend.operators.definition import unregistered
from gradkern.torch.operators import new_like

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
    addition: Any = call["input"]
    node = nodes[-1]
    if called(addition) not in ("add", "add_"):
        return
    total = value(addition)
    reason = _reason(node, addition, call) or fusion.against(name, total)
    results = {} if reason else dict.fromkeys((addition, node), new_like(addition.args[0].meta["example_value"]))
    tensors = (addition, call["weight"], call.get("bias"))
    reason = reason or fusion.proof.against((addition, *nodes), addition, tensors, (), tensors[:2], results)
    if reason:
        fusion.left(name, node, total, reason)
        return
    fusion.taken(name, node, total)
    parameters = (call["weight"], call["eps"]) if "bias" not in call else (call["weight"], call["bias"], call["eps"])
    with graph.inserting_before(addition):
        made = graph.call_function(RMS_NORM if "bias" not in call else LAYER_NORM, (*addition.args, *parameters))
        y, stream = (graph.call_function(operator.getitem, (made, place)) for place in (0, 1))
    replace(node, y, results[node])
    for each in reversed(nodes[:-1]):
        graph.erase_node(each)
    replace(addition, stream, results[addition])


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
    if "bias" not in call and memory_format(total) is None:  # of whose norm eager's strides depend on the device
        return "the sum is not contiguous"
    if bias is not None and bias.dtype != weight.dtype:
        return "weight and bias are of two types"
    return unregistered("SkipLayerNormalization", total.device, T=total.dtype, V=weight.dtype)
