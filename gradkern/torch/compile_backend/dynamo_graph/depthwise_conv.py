"""Stage 1: F.conv1d and F.conv2d with a filter of its own for each channel, as one operator in each direction."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, replace, value
from gradkern.torch.compile_backend.operators.definition import unregistered
from gradkern.torch.compile_backend.operators.depthwise_conv import DEPTHWISE_CONV, of_each_axis
from gradkern.torch.functional.convolutions import is_depthwise

__all__ = ["fuse"]

_NAME = "depthwise conv"


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; depthwise convolutions that cannot be are reported."""
    for node in calls(graph, torch.conv1d, torch.conv2d):
        call = arguments(node, "input", "weight", bias=None, stride=1, padding=0, dilation=1, groups=1)
        x, weight, y = value(call["input"]), value(call["weight"]), value(node)
        if weight is None or not is_depthwise(weight, call["groups"]):
            continue
        reason = _reason(y, x, weight, call) or fusion.against(_NAME, x)
        sizes = [of_each_axis(call[name], weight.dim() - 2) for name in ("stride", "padding", "dilation")]
        if reason or y is None:
            fusion.left(_NAME, node, x, reason)
            continue
        values = [value(call[name]) for name in ("input", "weight", "bias")]
        result = DEPTHWISE_CONV(*[None if each is None else each.detach().to(y.dtype) for each in values], *sizes)
        reason = fusion.proof.against((node,), node, results={node: result})
        if reason:
            fusion.left(_NAME, node, x, reason)
            continue
        fusion.taken(_NAME, node, x)
        with graph.inserting_before(node):
            tensors = [_cast(graph, call[name], y.dtype) for name in ("input", "weight", "bias")]
            made = graph.call_function(DEPTHWISE_CONV, (*tensors, *sizes))
        replace(node, made, result)


def _reason(y: torch.Tensor | None, x: torch.Tensor | None, weight: torch.Tensor, call: dict[str, Any]) -> str:
    """Why gradkern does not compute the convolution; "" if it does."""
    if x is None or y is None:
        return "an argument is no tensor of the graph"
    if x.device.type != "cuda" and not _ON_EVERY_DEVICE:
        return "it is not on a GPU"
    if x.dim() != weight.dim():
        return "it is not of a batch"
    if not y.requires_grad:
        return "no gradient of it is wanted"
    numbers = [each for name in ("stride", "padding", "dilation") for each in of_each_axis(call[name], 1)]
    if not all(type(each) is int for each in numbers):
        return "its padding is no number"
    return unregistered("Conv", y.device, T=y.dtype)


_ON_EVERY_DEVICE = False  # for tests: on a CPU PyTorch's are faster


def _cast(graph: fx.Graph, node: Any, dtype: torch.dtype) -> Any:
    """The tensor in this type, autocast's choice for the convolution."""
    found = value(node)
    return node if found is None or found.dtype == dtype else graph.call_method("to", (node, dtype))
