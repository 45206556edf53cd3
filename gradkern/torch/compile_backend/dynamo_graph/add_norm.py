"""Stage 1: an addition of two tensors and the layer norm or RMSNorm of the sum, as one operator.

Under autocast the two are of two types, a residual stream of float32 and a branch of 16 bits, and the norm is of
float32. Where nothing but products of 16 bits reads it, the operator gives it in their type.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import called, memory_format, value
from gradkern.torch.compile_backend.dynamo_graph.norms import Norm, is_cast, norms
from gradkern.torch.compile_backend.operators.add_norm import LAYER_NORM, RMS_NORM, type_name
from gradkern.torch.compile_backend.operators.definition import unregistered
from gradkern.torch.operators import new_like

__all__ = ["fuse"]


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; norms of sums that cannot be are reported."""
    for norm in norms(graph):
        if isinstance(norm.x, fx.Node) and norm.x._erased:
            reason = "the sum is already computed with another norm of it"
            fusion.left(f"add + {norm.kind}", norm.end, value(norm.end), reason)
        elif called(norm.x) in ("add", "add_"):
            fusion.take(_site(norm))


def _site(norm: Norm) -> Site:
    addition, total = norm.x, value(norm.x)
    name, terms = f"add + {norm.kind}", _terms(norm.x)
    dtype = _output_type(norm)
    reason = _reason(norm, terms, dtype)
    if reason or total is None or terms is None or dtype is None:
        return Site(name, norm.end, total, reason=reason)
    like = new_like(terms[0].meta["example_value"])

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        weight = norm.weight if norm.weight is not None else _ones(graph, total, value(norm.bias))
        parameters = (weight, norm.bias) if norm.kind == "layer_norm" else (weight,)
        target = LAYER_NORM if norm.kind == "layer_norm" else RMS_NORM
        made = graph.call_function(target, (*terms, *parameters, norm.eps, type_name(dtype)))
        return [graph.call_function(operator.getitem, (made, place)) for place in (0, 1)]

    return Site(
        name,
        norm.end,
        total,
        nodes=(addition, *norm.nodes),
        make=make,
        results={norm.end: like, addition: like},
        place=_place(norm),
        reads=(addition, *terms, norm.weight, norm.bias),
        saves=(addition, norm.weight),
        doubt=_doubt(norm),
    )


def _terms(addition: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """The two tensors of one shape that it adds, that of the sum's type second; None where it adds others."""
    total = value(addition)
    if total is None or addition.kwargs or len(addition.args) != 2:
        return None
    one, other = addition.args
    tensors = [each for each in map(value, (one, other)) if each is not None]
    if len(tensors) < 2 or any((each.shape, each.device) != (total.shape, total.device) for each in tensors):
        return None
    if not isinstance(one, fx.Node) or not isinstance(other, fx.Node):
        return None
    return (one, other) if tensors[1].dtype == total.dtype else (other, one)


_PRODUCTS = {
    *(functional.linear, operator.matmul, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm),
    *(torch.conv1d, torch.conv2d, torch.conv3d, functional.scaled_dot_product_attention),
}
_MOVES = {
    *("view", "reshape", "flatten", "unflatten", "permute", "transpose", "contiguous", "squeeze", "unsqueeze"),
    *(operator.getitem, torch.roll, torch.flatten, torch.reshape, torch.permute, torch.transpose, functional.pad),
}
"""Functions and methods whose result has elements of their first argument, and zeros."""


def _output_type(norm: Norm) -> torch.dtype | None:
    """The type that the norm's result is given: that which it has, or the one of 16 bits that all that reads it casts
    it to, as products do under autocast.
    """
    y = value(norm.end)
    if y is None or y.dtype is not torch.float32:
        return None if y is None else y.dtype
    found = _read_as(norm.end)
    return found.pop() if len(found) == 1 else y.dtype


def _read_as(node: fx.Node) -> set[torch.dtype]:
    """The types of what is computed from it; float32 where what reads it may compute with float32."""
    found = set[torch.dtype]()
    for user in node.users:
        read = value(user)
        if read is None and user.op.startswith("call_") and (user.target == "size" or user.target is getattr):
            continue
        if user.target in _MOVES and user.args[0] is node and read is not None:
            found |= _read_as(user)
        else:
            casts = is_cast(user) or user.target in _PRODUCTS
            found.add(read.dtype if read is not None and casts and read.itemsize == 2 else torch.float32)
    return found


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


def _reason(norm: Norm, terms: tuple[fx.Node, fx.Node] | None, dtype: torch.dtype | None) -> str:
    """Why the two are nothing that gradkern computes as one; "" if they are."""
    total, y, weight, bias = (value(each) for each in (norm.x, norm.end, norm.weight, norm.bias))
    if called(norm.x) == "add_":
        return "the addition writes what is added to"
    if total is None or terms is None:
        return "it adds no two tensors of one shape"
    if norm.reason or y is None or dtype is None:
        return norm.reason or "its result is no tensor of the graph"
    if not isinstance(norm.eps, float):
        return "its epsilon is no constant"
    if not y.requires_grad:
        return "no gradient of it is wanted"
    if norm.kind == "rms_norm" and memory_format(total) is None:  # eager's strides depend on the device
        return "the sum is not contiguous"
    if bias is not None and weight is not None and bias.dtype != weight.dtype:
        return "weight and bias are of two types"
    types = {each.dtype for each in (weight, bias) if each is not None}
    branch, kind = terms[0].meta["example_value"].dtype, (types or {_wide(total)}).pop()
    every = {"T": total.dtype, "S": branch, "G": dtype, "V": kind}
    names = ("SkipLayerNormalization", "LayerNormalizationGrad")
    return next(filter(None, [unregistered(name, total.device, **every) for name in names]), "")
