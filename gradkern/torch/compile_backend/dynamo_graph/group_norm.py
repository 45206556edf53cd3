"""Stage 1: F.group_norm, with the scale and shift of a time embedding and the activation behind it, as one operator.

PyTorch's group norm of a channels-last tensor on a GPU is not channels-last: a copy each way beside every norm. Where
only convolutions take the result and theirs is channels-last anyway, gradkern's stays as the input is. There autocast's
widening to float32 makes no difference either, as the convolutions round it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.batch_norm import Chain
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import (
    arguments,
    called,
    calls,
    memory_format,
    only_user,
    value,
)
from gradkern.torch.compile_backend.dynamo_graph.instance_norm import CONVS
from gradkern.torch.compile_backend.operators import define, gradient, unregistered
from gradkern.torch.functional.group_norms import backward_pass, forward_pass
from gradkern.torch.operators import new_like, wide

Tensor = torch.Tensor

GROUP_NORM = define("group_norm_act", forward_pass, ("y", "mean", "inv_std"))
BACKWARD = gradient(
    GROUP_NORM,
    backward_pass,
    ("x", "weight", "bias", "sample_scale", "sample_shift"),
    computed={"bias": lambda x, weight, bias, *more: None if more[-2] == "none" else bias},
)


_NAME = "group_norm"
_MOST_RANK = 5


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; whatever is found is reported."""
    for node in calls(graph, functional.group_norm, torch.group_norm):
        call = _call(node)
        x, reason = value(call["input"]), _reason(node, call)
        if reason or x is None:
            fusion.report(_NAME, node, x, reason)
            continue
        fusion.take(*[_site(chain, call, x) for chain in [*_chains(node)][::-1]])


def left(node: fx.Node) -> str:
    """Why such a norm is left to Inductor, whatever the gates say; "" where it is not."""
    return _reason(node, _call(node))


def _call(node: fx.Node) -> dict[str, Any]:
    return arguments(node, "input", "num_groups", weight=None, bias=None, eps=1e-5)


def _reason(node: fx.Node, call: dict[str, Any]) -> str:
    """Why gradkern does not compute the norm; "" if it does."""
    x, y = value(call["input"]), value(node)
    if x is None or y is None:
        return "its input is no tensor of the graph"
    if not isinstance(call["num_groups"], int) or not isinstance(call["eps"], float):
        return "its epsilon is no constant"
    if not y.requires_grad:
        return "no gradient of it is wanted"
    if not 2 <= x.dim() <= _MOST_RANK or memory_format(x) is None:
        return "its input is neither contiguous nor channels last"
    parameters = [value(call[name]) for name in ("weight", "bias")]
    types = {each.dtype for each in parameters if each is not None} or {wide(x)}
    if (parameters[0] is None) != (parameters[1] is None) or len(types) > 1:
        return "its types differ"
    return unregistered("GroupNormalization", x.device, T=x.dtype, M=types.pop())


def _chains(node: fx.Node) -> Iterator[Chain]:
    """What may be one operator, the shortest first."""
    for chain in filter(None, (Chain(_NAME, (node,)), _scaled(node))):
        yield chain
        yield from chain.activated()


def _scaled(node: fx.Node) -> Chain | None:
    """The norm's output times 1 + s, plus t; s and t have a number for each channel of each sample."""
    product = only_user(node)
    total = None if product is None else only_user(product)
    if product is None or total is None or product.target not in (operator.mul, torch.mul) or called(total) != "add":
        return None
    factor, shift = _other(product, node), _other(total, product)
    if factor is None or shift is None or called(factor) != "add" or len(factor.args) != 2 or factor.kwargs:
        return None
    scales = [each for each in factor.args if each != 1]
    whole = value(node)
    if whole is None or len(scales) != 1 or not isinstance(scales[0], fx.Node):
        return None
    shape = (*whole.shape[:2], *(1,) * (whole.dim() - 2))
    found = [value(each) for each in (scales[0], shift)]
    if any(each is None or tuple(each.shape) != shape for each in found):
        return None
    return Chain(f"{_NAME} + scale and shift", (node, product, total), (scales[0], shift))


def _other(node: fx.Node, one: fx.Node) -> fx.Node | None:
    """The other argument of a call with two."""
    others = [each for each in node.args if each is not one]
    return others[0] if len(node.args) == 2 and not node.kwargs and isinstance(others[0], fx.Node) else None


def _site(chain: Chain, call: dict[str, Any], x: torch.Tensor) -> Site:
    """The chain as one operator in the place of its last call."""
    last, of_sample = chain.nodes[-1], chain.others or (None, None)
    tensors = [call[name] for name in ("input", "weight", "bias")]
    y = value(last)
    rounded = _is_rounded_by_convolutions(last, x)
    if y is None or (y.dtype != x.dtype and not rounded):
        return Site(chain.fusion, chain.nodes[0], x, reason="its result is wider than its input")

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        flat = [None if each is None else graph.call_method("flatten", (each, 1)) for each in of_sample]
        flat = [each and graph.call_method("to", (each, x.dtype)) for each in flat]
        how = call["num_groups"], call["eps"], chain.activation, chain.alpha
        made = graph.call_function(GROUP_NORM, (*tensors, *flat, *how))
        return [graph.call_function(operator.getitem, (made, 0))]

    return Site(
        chain.fusion,
        chain.nodes[0],
        x,
        nodes=chain.nodes,
        make=make,
        results={last: y if rounded else new_like(x)},
        reads=[*tensors, *of_sample],
        saves=[*tensors, *of_sample],
    )


def _is_rounded_by_convolutions(node: fx.Node, x: torch.Tensor) -> bool:
    """Whether only convolutions take it, through dropout or a change of order or not, in the type of x, and give what
    eager's would have been whatever the order of their input is.
    """
    expected = x.dtype, memory_format(x)

    def fits(user: fx.Node) -> bool:
        found = value(user)
        if found is None or user.args[:1] != (node,):
            return False
        if user.target is functional.dropout or (user.target == "to" and {*user.kwargs} == {"memory_format"}):
            return _is_rounded_by_convolutions(user, x)
        return user.target in CONVS and (found.dtype, memory_format(found)) == expected

    return bool(node.users) and all(map(fits, node.users))
