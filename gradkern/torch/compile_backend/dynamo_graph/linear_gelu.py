"""Stage 1: F.linear and F.gelu behind it, as a product without bias and one operator for the rest.

Its backward pass reads the gradient once for both the gradient of the product and of the bias.
"""

from __future__ import annotations

from typing import Any

from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, only_user, value
from gradkern.torch.compile_backend.operators.bias_gelu import BIAS_GELU
from gradkern.torch.compile_backend.operators.definition import unregistered

__all__ = ["fuse"]

_NAME = "linear + gelu"


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; linear layers with a GELU that cannot be are reported."""
    for node in calls(graph, functional.linear):
        gelu = only_user(node)
        if gelu is None or gelu.target is not functional.gelu:
            continue
        call, product = arguments(node, "input", "weight", bias=None), value(node)
        approximate = arguments(gelu, "input", approximate="none")["approximate"]
        reason = _reason(gelu, call) or fusion.against(_NAME, product)
        if reason:
            fusion.left(_NAME, node, product, reason)
            continue
        fusion.taken(_NAME, node, product)
        bias = call["bias"]
        with graph.inserting_before(gelu):
            y = _bias_gelu(graph, node, product, bias, approximate)
        node.args, node.kwargs = (call["input"], call["weight"]), {}
        y.meta = dict(gelu.meta)
        gelu.replace_all_uses_with(y)
        graph.erase_node(gelu)


def _bias_gelu(graph: fx.Graph, node: fx.Node, product: Any, *rest: Any) -> fx.Node:
    """The operator of a linear layer's product. What has more than three axes becomes a matrix for it: Inductor lays
    four axes out as an image's wherever a convolution is near, in the backward pass's saved tensors, too.
    """
    rows = graph.call_method("flatten", (node, 0, -2)) if product.dim() > 3 else node
    y = graph.call_function(BIAS_GELU, (rows, *rest))
    return y if rows is node else graph.call_method("reshape", (y, graph.call_function(getattr, (node, "shape"))))


def _reason(gelu: fx.Node, call: dict[str, Any]) -> str:
    """Why the two are nothing that gradkern computes as one; "" if they are."""
    y, bias = value(gelu), value(call["bias"])
    if bias is None:
        return "the linear layer has no bias"
    if y is None or not y.requires_grad:
        return "no gradient of it is wanted"
    return unregistered("BiasGelu", y.device, T=y.dtype, TB=bias.dtype)
