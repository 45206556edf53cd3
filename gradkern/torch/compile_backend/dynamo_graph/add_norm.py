"""Stage 1: an addition of two tensors and the layer norm or RMSNorm of the sum, as one operator.

Under autocast the two are of two types, a residual stream of float32 and a branch of 16 bits, and the norm is of
float32. Where nothing but products of 16 bits reads it, the operator gives it in their type. The sum is a
result, too, and its gradient comes to the same backward pass. That adds it to the norm's, and gives the first term's
gradient in its own type: no other pass adds or casts. Where inductor_graphs.joint_graph wants it, that pass sums the
result over its rows, too.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import called, memory_format, type_read, value
from gradkern.torch.compile_backend.dynamo_graph.norms import Norm, norms
from gradkern.torch.compile_backend.operators import define, differentiable, unregistered
from gradkern.torch.functional.residual_norms import (
    BRANCH,
    SUM,
    layer_norm_backward,
    layer_norm_pass,
    rms_norm_backward,
    rms_norm_pass,
)
from gradkern.torch.operators import new_like, type_name, wide

Tensor = torch.Tensor

LAYER_NORM = define("add_layer_norm", layer_norm_pass, ("y", "total", "mean", "inv_std"), rows=True)
RMS_NORM = define("add_rms_norm", rms_norm_pass, ("y", "total", "inv_rms"), rows=True)
_GRADIENTS = "dx", "dweight", "dbias", "dx_sum", "dbranch"
_LAYER_NORM_BACKWARD = define("add_layer_norm_backward", layer_norm_backward, _GRADIENTS, rows=True)
_RMS_NORM_BACKWARD = define("add_rms_norm_backward", rms_norm_backward, _GRADIENTS[1:], rows=True)
BACKWARDS = (_LAYER_NORM_BACKWARD, _RMS_NORM_BACKWARD)
"""Their last argument is the mask of wanted results. The first of those is the gradient of the sum; SUM and BRANCH."""


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, residual, weight = inputs[:3]
    _, total, *statistics = output
    ctx.save_for_backward(total, weight, *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)
    ctx.branch = x.dtype if x.dtype != residual.dtype else None


def _differentiate(ctx: Any, grad: Tensor | None, sum_grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    of_x, of_residual, *parameters = ctx.needs_input_grad[:-2]  # without eps and dtype
    branch = ctx.branch
    if grad is None:  # the norm's output is not used
        dx, found = sum_grad, [None] * len(parameters)
        of_branch = dx if branch is None or dx is None or not of_x else dx.to(branch)
    else:
        mask = [of_residual or (of_x and branch is None), *parameters, False, of_x and branch is not None]
        backward = _LAYER_NORM_BACKWARD if len(parameters) > 1 else _RMS_NORM_BACKWARD
        # Behind the last norm they come in the order of images, and the operator would copy them
        grad, sum_grad = grad.contiguous(), None if sum_grad is None else sum_grad.contiguous()
        results = backward(grad, sum_grad, *ctx.saved_tensors, type_name(branch or ctx.saved_tensors[0].dtype), mask)
        dx, *found = [each if wanted else None for each, wanted in zip(results, mask, strict=True)]
        of_branch = dx if branch is None else found[BRANCH]
        found = found[:SUM]
    return of_branch if of_x else None, dx if of_residual else None, *found, None, None


differentiable(LAYER_NORM, _differentiate, _setup)
differentiable(RMS_NORM, _differentiate, _setup)


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; norms of sums that cannot be are reported."""
    for norm in norms(graph):
        view = norm.x if _is_view(norm.x) else None
        if view is not None:
            norm = replace(norm, x=view.args[0])
        if isinstance(norm.x, fx.Node) and norm.x._erased:
            reason = "the sum is already computed with another norm of it"
            fusion.report(f"add + {norm.kind}", norm.end, value(norm.end), reason)
        elif called(norm.x) in ("add", "add_"):
            fusion.take(_site(norm, view))


def _is_view(node: Any) -> bool:
    """Whether it is a sum whose rows stay rows in another shape, as Swin's windows and tokens are: nothing moves."""
    if not isinstance(node, fx.Node) or node.op != "call_method" or node.target not in ("view", "reshape", "flatten"):
        return False
    if node.all_input_nodes != [node.args[0]]:  # a size is computed, perhaps later than the sum
        return False
    x, y = value(node.args[0]), value(node)
    rows = x is not None and y is not None and x.dim() and y.dim() and x.shape[-1] == y.shape[-1]
    whole = all(each is not None and memory_format(each) is torch.contiguous_format for each in (x, y))
    return bool(rows) and whole and called(node.args[0]) in ("add", "add_")  # pyright: ignore[reportArgumentType]


def _site(norm: Norm, view: fx.Node | None) -> Site:
    addition, total = norm.x, value(norm.x)
    name, terms = f"add + {norm.kind}", _terms(norm.x)
    dtype = type_read(norm.end)
    reason = _reason(norm, terms, dtype)
    if reason or total is None or terms is None or dtype is None:
        return Site(name, norm.end, total, reason=reason)
    like = new_like(terms[0].meta["example_value"])

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        weight = norm.weight if norm.weight is not None else _ones(graph, total, value(norm.bias))
        parameters = (weight, norm.bias) if norm.kind == "layer_norm" else (weight,)
        target = LAYER_NORM if norm.kind == "layer_norm" else RMS_NORM
        # Inductor lays out what has four axes and is kept for the backward pass as images, if convolutions follow
        flat = total.dim() == 4
        given = [graph.call_method("flatten", (each, 0, -2)) for each in terms] if flat else terms
        made = graph.call_function(target, (*given, *parameters, norm.eps, type_name(dtype)))
        y, found = (graph.call_function(operator.getitem, (made, place)) for place in (0, 1))
        if flat:
            y, found = (graph.call_method("view_as", (each, terms[1])) for each in (y, found))
        return [y if view is None else graph.call_method(str(view.target), (y, *view.args[1:]), view.kwargs), found]

    # a view that others see stays, and the sum comes before it
    stays = view is not None and not view.users.keys() <= set(norm.nodes)
    nodes = (addition, *norm.nodes) if view is None or stays else (addition, view, *norm.nodes)
    return Site(
        name,
        norm.end,
        total,
        nodes=nodes,
        make=make,
        results={norm.end: like if view is None else new_like(view.meta["example_value"]), addition: like},
        place=addition if stays else _place(norm, nodes),
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


def _place(norm: Norm, nodes: tuple[fx.Node, ...]) -> fx.Node:
    """The norm's last call, since its weight may be computed before that, unless others use the sum earlier."""
    earlier = [each for each in norm.x.users if each not in nodes and each < norm.end]
    return norm.x if earlier else norm.end


def _ones(graph: fx.Graph, x: torch.Tensor, bias: torch.Tensor | None) -> fx.Node:
    dtype = wide(x) if bias is None else bias.dtype
    return graph.call_function(torch.full, ((x.shape[-1],), 1.0), {"dtype": dtype, "device": x.device})


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
    if any(memory_format(value(each)) is not torch.contiguous_format for each in terms):  # pyright: ignore[reportArgumentType]
        return "one of the two is not contiguous"  # as the branch of torchvision's attention: copies cost the gain
    if bias is not None and weight is not None and bias.dtype != weight.dtype:
        return "weight and bias are of two types"
    types = {each.dtype for each in (weight, bias) if each is not None}
    branch, kind = terms[0].meta["example_value"].dtype, (types or {wide(total)}).pop()
    every = {"T": total.dtype, "S": branch, "G": dtype, "V": kind}
    names = ("SkipLayerNormalization", "LayerNormalizationGrad")
    return next(filter(None, [unregistered(name, total.device, **every) for name in names]), "")
