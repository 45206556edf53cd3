"""Stage 1: pools, upsampling and embeddings, for their gradients. Inductor would add with atomics, in another order
each run, or call PyTorch's slow kernels.

A call is run without data, to see what aten's backward operator would be given. The translations that `enable` has say
what that is in the registry's words. Max pools have an operator of their own, with indices of a byte each; all others
stay PyTorch's, under an operator for the sake of its gradient, as embeddings do: Inductor fuses them with what reads
them.
"""

from __future__ import annotations

import operator
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]
from torch.utils._python_dispatch import TorchDispatchMode  # pyright: ignore[reportMissingImports]
from torch.utils._pytree import tree_leaves  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten import TRANSLATIONS
from gradkern.torch.aten.request import AtenRequest
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site, off_gpu, unwanted
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, value
from gradkern.torch.compile_backend.operators import Size, define, gradient, unregistered
from gradkern.torch.direct import Attributes, Direct, OpCall
from gradkern.torch.operators import new_like

Tensor = torch.Tensor

_MAX_POOL = Direct("MaxPool", ("Y", "Indices"))
_GRADIENTS = {
    name: Direct(name, ("dX",))
    for name in ("MaxPoolGrad", "AveragePoolGrad", "AdaptiveAveragePoolGrad", "ResizeGrad", "GatherGrad")
}


@cache
def _attributes(text: str) -> Attributes:
    """Those that a schema of PyTorch's has no one type for."""
    return tuple(literal_eval(text))


def _max_pool(x: Tensor, attributes: str) -> OpCall:
    return OpCall(_MAX_POOL, (True, True), (x,), (*_attributes(attributes), ("indices_type", "uint8")))


def _max_pool_backward(grad: Tensor, indices: Tensor, size: list[Size], attributes: str) -> OpCall:
    return _backward(grad, indices, size, "MaxPoolGrad", attributes)


def _copy(output: Tensor, x: Tensor, indices: Tensor | None, operator: str, attributes: str) -> Tensor:
    return new_like(output).copy_(output)


def _backward(grad: Tensor, indices: Tensor | None, size: list[Size], operator: str, attributes: str) -> OpCall:
    tensors = (grad,) if indices is None else (grad, indices)
    of_size = "input_size", tuple(size[2:])
    if operator == "GatherGrad":
        tensors, of_size = (None, indices, grad), ("shape", tuple(size))
    return OpCall(_GRADIENTS[operator], (True,), tensors, (*_attributes(attributes), of_size))


MAX_POOL = define("max_pool", _max_pool, ("y", "indices"))
MAX_POOL_BACKWARD = gradient(MAX_POOL, _max_pool_backward, ("x",), computed={"size": lambda x, *_: list(x.shape)})
WITH_GRADIENT = define("with_gradient", _copy, ("y",), lambda output, *_: new_like(output))
gradient(
    WITH_GRADIENT,
    _backward,
    ("x",),
    computed={"size": lambda output, x, *_: list(x.shape)},
    twin=WITH_GRADIENT,
)


def _with_gradient(graph: fx.Graph, node: fx.Node, x: Any, indices: Any, operator: str, attributes: str) -> fx.Node:
    """The call again, of a constant, with this operator for the gradient of x."""
    constant = graph.call_method("detach", (x,))
    made = graph.node_copy(node, lambda each: constant if each is x else each)
    return graph.call_function(WITH_GRADIENT, (made, x, indices, operator, attributes))


def leave_forward_passes(graph: fx.Graph) -> None:
    """Stage 2: once autograd has found their gradients, the outputs are PyTorch's again."""
    for node in graph.find_nodes(op="call_function", target=WITH_GRADIENT):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


_FUNCTIONS = {
    getattr(module, f"{name}{rank}d"): name
    for name in ("max_pool", "avg_pool", "adaptive_avg_pool")
    for rank in (1, 2, 3)
    for module in (functional, torch)
    if hasattr(module, f"{name}{rank}d")
} | {functional.interpolate: "interpolate"}
_AVERAGE = "Inductor computes it in one pass, too, with what stands beside it"
_REQUESTS = {each.name: each.request for each in TRANSLATIONS if each.group in ("pooling", "resize")}
_OPEN = "the sizes that it depends on are open"
_MOST_OF_A_BYTE = 256


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; what cannot be is reported."""
    for node in calls(graph, functional.embedding):
        fusion.take(_embedding(node))
    for node in calls(graph, *_FUNCTIONS):
        fusion.take(_site(node, _FUNCTIONS[node.target]))


def _site(node: fx.Node, name: str) -> Site:
    of_x: Any = node.args[0] if node.args else node.kwargs["input"]
    x, y = value(of_x), value(node)
    larger = max([each for each in (x, y) if each is not None], key=torch.Tensor.numel, default=None)
    reason = _reason(x, y, arguments(node, "input", size=None)["size"] if name == "interpolate" else None)
    request = None if reason or x is None else _request(node, of_x, x)
    if request is None or x is None or y is None:
        return Site(name, node, larger, reason=reason or "gradkern has no gradient of it")
    given = {key: each for key, each in request.attributes.items() if key != "input_size"}
    attributes, with_indices = repr((*given.items(),)), request.op == "MaxPoolGrad"
    if not all(isinstance(each, int | float | str) for each in tree_leaves(given)):
        reason = _OPEN
    elif with_indices and torch.Size(given["kernel_shape"]).numel() > _MOST_OF_A_BYTE:
        reason = f"its windows have more than {_MOST_OF_A_BYTE} elements"
    types = {"T": x.dtype, "I": torch.uint8} if with_indices else {"T": x.dtype}
    reason = reason or unregistered(request.op, x.device, **types)

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        if with_indices:
            return [graph.call_function(operator.getitem, (graph.call_function(MAX_POOL, (of_x, attributes)), 0))]
        return [_with_gradient(graph, node, of_x, None, request.op, attributes)]

    result = y if reason or not with_indices else MAX_POOL(x, attributes)[0]
    return Site(
        name,
        node,
        larger,
        nodes=(node,),
        make=make,
        results={node: result},
        reads=[of_x],
        reason=reason,
        doubt=_AVERAGE if name == "avg_pool" else "",
    )


def _reason(x: torch.Tensor | None, y: torch.Tensor | None, size: Any) -> str:
    """Why gradkern does not compute the gradient; "" if it may."""
    if x is None or y is None:
        return "its indices are wanted" if y is None else "its input is no tensor of the graph"
    if off_gpu(x) or unwanted(y) or x.dtype != y.dtype:
        return off_gpu(x) or unwanted(y) or "its types differ"
    is_open = size is not None and not all(isinstance(each, int) for each in (*x.shape[2:], *y.shape[2:]))
    return _OPEN if is_open else ""


def _request(node: fx.Node, of_x: fx.Node, x: torch.Tensor) -> AtenRequest | None:
    """The gradient in the registry's words; None where it is another operator's, or of no batch."""
    leaf = x.detach().requires_grad_()
    run = _Backward()
    given, named = fx.map_arg(
        (node.args, node.kwargs), lambda each: leaf if each is of_x else each.meta.get("example_value")
    )
    target: Any = node.target
    try:
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False), run:
            y = target(*given, **named)
            torch.autograd.grad(y, leaf, torch.empty_like(y))
    except (RuntimeError, TypeError):  # some of aten's functions take no symbols for sizes, or no empty batch
        return None
    if len(run.requests) != 1:
        return None
    (request,) = run.requests
    gradient: Any = request.inputs["dY"]
    if gradient.dim() == y.dim() + 1:  # PyTorch pools one dimension as two, the first of one element
        # of an attribute for two, what the last has: one number, or two, before it and after it
        every = request.attributes.items()
        attributes = {key: each[1::2] if isinstance(each, tuple) else each for key, each in every}
        request, gradient = replace(request, attributes=attributes), gradient.squeeze(-2)
    return None if request.views or gradient.shape != y.shape else request


class _Backward(TorchDispatchMode):
    """The requests for what aten's operators of gradients are given; their results have no values."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[AtenRequest] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        request = _REQUESTS.get(func._schema.name.removeprefix("aten::"))
        if request is None:
            return func(*args, **kwargs or {})
        self.requests.append(request(*args, **kwargs or {}))
        gradient: Any = self.requests[-1].inputs["dY"]
        size = self.requests[-1].attributes["input_size"]
        return gradient.new_empty((*gradient.shape[: -len(size)], *size))


def _embedding(node: fx.Node) -> Site:
    names = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False}
    call = arguments(node, "input", "weight", **names)
    indices, weight, y = value(call["input"]), value(call["weight"]), value(node)
    if indices is None or weight is None or y is None:
        return Site("embedding", node, y, reason="an argument is no tensor of the graph")
    reason = off_gpu(weight) or unwanted(weight, y)
    reason = reason or unregistered("GatherGrad", weight.device, T=weight.dtype, I=indices.dtype)
    if not reason and (call["max_norm"] is not None or call["scale_grad_by_freq"] or call["sparse"]):
        reason = "max_norm, scale_grad_by_freq and sparse are PyTorch's"
    place = call["padding_idx"]
    padding = () if place is None else (("padding_idx", place if place >= 0 else int(place + weight.shape[0])),)

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        return [_with_gradient(graph, node, call["weight"], call["input"], "GatherGrad", repr(padding))]

    return Site("embedding", node, y, nodes=(node,), make=make, results={node: y}, reason=reason)
