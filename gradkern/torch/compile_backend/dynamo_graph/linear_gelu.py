"""Stage 1: a linear layer and F.gelu behind it, as a product without bias and one operator for the rest.

GELU may be spelled out, as transformers' GPT-2 does, and the linear layer may be transformers' Conv1D. The operator's
backward pass reads the gradient once for both the gradient of the product and of the bias. What no pass takes stays as
the model wrote it, with its roundings. An operator rounds once, at the end; of 16 bits, a GELU in other words rounds
after every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, only_user, type_read, value
from gradkern.torch.compile_backend.operators import define, gradient, unregistered
from gradkern.torch.direct import Direct, OpCall
from gradkern.torch.functional.functions import GELU_GRAD
from gradkern.torch.operators import new_like

Tensor = torch.Tensor

_GELU = {"none": Direct("BiasGelu", ("C",)), "tanh": Direct("BiasFastGelu", ("C",))}


def _forward(x: Tensor, bias: Tensor, approximate: str) -> OpCall:
    return OpCall(_GELU[approximate], (True,), (x, bias))


def _backward(grad: Tensor, x: Tensor, bias: Tensor, approximate: str, mask: list[bool]) -> OpCall:
    return OpCall(GELU_GRAD[approximate], tuple(mask), (grad, x, bias))


BIAS_GELU = define("bias_gelu", _forward, ("y",), rows=True)
BACKWARD = gradient(BIAS_GELU, _backward, ("x", "bias"))


class Gelu(NamedTuple):
    """The calls, whose results nothing else uses but the last one's, what GELU is computed of, and F.gelu's option."""

    nodes: tuple[fx.Node, ...]
    x: Any
    approximate: str


_SPELLED: list[tuple[Callable[[Any], Any], str]] = [
    # NewGELUActivation of transformers 5
    (lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))), "tanh"),
    # FastGELUActivation of transformers 5
    (lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))), "tanh"),
    # GELUActivation(use_gelu_python=True) of transformers 5
    (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), "none"),
]
_MATCHERS = [(SubgraphMatcher(fx.symbolic_trace(gelu).graph), approximate) for gelu, approximate in _SPELLED]


def gelus(graph: fx.Graph) -> Iterator[Gelu]:
    for node in calls(graph, functional.gelu):
        call = arguments(node, "input", approximate="none")
        yield Gelu((node,), call["input"], call["approximate"])
    for matcher, approximate in _MATCHERS:
        inner = [each for each in matcher.pattern.nodes if each.op not in ("placeholder", "output")]
        x = next(each for each in matcher.pattern.nodes if each.op == "placeholder")
        for found in matcher.match(graph):
            yield Gelu(tuple(sorted(found.nodes_map[each] for each in inner)), found.nodes_map[x], approximate)


_NAME = "linear + gelu"


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; linear layers with a GELU that cannot be are reported."""
    for gelu in gelus(graph):
        linear = _linear(gelu.x)
        if linear is not None and gelu.x.users.keys() <= set(gelu.nodes):
            fusion.take(_site(gelu, linear))


def _site(gelu: Gelu, linear: _Linear) -> Site:
    product, end, x = gelu.x, gelu.nodes[-1], value(gelu.x)
    reason = _reason(end, linear, x)
    if reason or x is None:
        return Site(_NAME, linear.node, x, reason=reason)

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        linear.node.target, linear.node.args, linear.node.kwargs = linear.without_bias, linear.factors, {}
        return [_bias_gelu(graph, product, x, linear.bias, gelu.approximate)]

    return Site(
        _NAME,
        linear.node,
        x,
        nodes=tuple({linear.node, product, *gelu.nodes}),
        make=make,
        results={end: new_like(x if x.dim() <= 3 else x.contiguous())},
        reads=(linear.bias,),
        saves=(linear.bias,),
    )


class _Linear(NamedTuple):
    """A linear layer: the call that computes it, and what computes the product alone, of these factors."""

    node: fx.Node
    bias: Any
    without_bias: Any
    factors: tuple[Any, ...]


def _linear(product: Any) -> _Linear | None:
    """The linear layer that this is the result of: F.linear, or transformers' Conv1D (torch.addmm of a matrix and a
    view of the result). None for all else.
    """
    if not isinstance(product, fx.Node):
        return None
    if product.target is functional.linear:
        call = arguments(product, "input", "weight", bias=None)
        return _Linear(product, call["bias"], functional.linear, (call["input"], call["weight"]))
    node = product.args[0] if product.op == "call_method" and product.target == "view" else None
    if not isinstance(node, fx.Node) or node.target is not torch.addmm or only_user(node) is not product:
        return None
    if node.kwargs or len(node.args) != 3:  # beta, alpha
        return None
    bias, *factors = node.args
    added, y, x = (value(each) for each in (bias, node, product))
    if added is None or y is None or x is None or not added.shape == y.shape[-1:] == x.shape[-1:]:
        return None
    return _Linear(node, bias, torch.mm, tuple(factors))


def _bias_gelu(graph: fx.Graph, node: fx.Node, product: Any, *rest: Any) -> fx.Node:
    """The operator of a linear layer's product. What has more than three axes becomes a matrix for it: Inductor lays
    four axes out as an image's wherever a convolution is near, in the backward pass's saved tensors, too.
    """
    rows = graph.call_method("flatten", (node, 0, -2)) if product.dim() > 3 else node
    y = graph.call_function(BIAS_GELU, (rows, *rest))
    return y if rows is node else graph.call_method("reshape", (y, graph.call_function(getattr, (node, "shape"))))


def _reason(gelu: fx.Node, linear: _Linear, x: Any) -> str:
    """Why the two are nothing that gradkern computes as one; "" if they are."""
    y, bias = value(gelu), value(linear.bias)
    if bias is None:
        return "the linear layer has no bias"
    if y is None or not y.requires_grad:
        return "no gradient of it is wanted"
    if x is None or type_read(gelu) != x.dtype:  # of a GELU that is spelled out, as CUDA's autocast computes pow
        return "autocast computes it in another type"
    return unregistered("BiasGelu", y.device, T=x.dtype, TB=bias.dtype)
