"""Stage 1: F.instance_norm by the statistics of its input, with the activation behind it and without the bias of the
convolution before it, as one operator.

PyTorch computes it as a batch norm of batch times channels, so channels have to come first in memory. Where
channels_last_3d.py has moved them last, Inductor's reductions reach a quarter of the bandwidth, and gradkern's all. The
operator is a batch norm of each sample apart, with a launch for each: that reads the sample as a batch of one.

What is added to all elements of a channel before, as a convolution's bias is, changes neither output nor gradients, and
its own gradient is zero. The operator takes it as `shift`, for autograd alone: nobody need add it or sum up for it what
rounding makes of zero.
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.batch_norm import activation_of
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, only_user, replace, value
from gradkern.torch.compile_backend.operators import define, gradient, unregistered
from gradkern.torch.direct import Direct, given
from gradkern.torch.operators import new_like, wide

Tensor = torch.Tensor

_STATISTICS = ("saved_mean", "saved_inv_std")
_BATCH_NORM = Direct("BatchNormalization", ("Y", "running_mean", "running_var", *_STATISTICS), searched=True)
_BATCH_NORM_GRAD = Direct("BatchNormalizationGrad", ("dX", "dScale", "dBias"), searched=True)


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None, eps: float, activation: str, alpha: float
) -> tuple[Tensor, ...]:
    """The output, and mean and 1 / standard deviation of each channel of each sample."""
    y, mean, inv_std = made = _fake_forward(x)
    attributes = ("epsilon", eps), ("activation", activation), ("activation_alpha", alpha)
    for n in range(x.shape[0]):
        out = {"Y": y[n : n + 1], "saved_mean": mean[n], "saved_inv_std": inv_std[n]}
        _BATCH_NORM((True, False, False, True, True), (x[n : n + 1], weight, bias), attributes, out)
    return made


def _fake_forward(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    mean, inv_std = (x.new_empty(x.shape[:2], dtype=wide(x)) for _ in range(2))
    return new_like(x), mean, inv_std


def _backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    inv_std: Tensor,
    activation: str,
    alpha: float,
    mask: list[bool],
) -> tuple[Tensor, ...]:
    """The gradients of x, weight and bias that the mask asks for."""
    samples = range(x.shape[0])
    attributes = ("activation", activation), ("activation_alpha", alpha)
    dx = new_like(x) if mask[0] else None
    sums = [weight.new_empty(x.shape[:2]) if wanted else None for wanted in mask[1:]]
    for n in samples:
        every = (None if dx is None else dx[n : n + 1], *[None if each is None else each[n] for each in sums])
        out = {name: each for name, each in zip(_BATCH_NORM_GRAD.outputs, every, strict=True) if each is not None}
        tensors = grad[n : n + 1], x[n : n + 1], weight, mean[n], inv_std[n], bias
        _BATCH_NORM_GRAD(tuple(mask), tensors, attributes, out)
    added = [None if each is None else each[0] if len(samples) == 1 else each.sum(0) for each in sums]
    return given((dx, *added), x)


def _fake_backward(grad: Tensor, x: Tensor, weight: Tensor, *more: Any) -> tuple[Tensor, ...]:
    models = (x, weight, weight)
    return given(tuple([new_like(each) if wanted else None for each, wanted in zip(models, more[-1], strict=True)]), x)


INSTANCE_NORM = define("instance_norm_act", _forward, ("y", "mean", "inv_std"), _fake_forward, rows=True)
BACKWARD = gradient(
    INSTANCE_NORM,
    _backward,
    ("x", "weight", "bias"),
    _fake_backward,
    computed={"bias": lambda x, weight, bias, *more: None if more[-2] == "none" else bias},  # x says where it was cut
    constant="shift",
)


_NAME = "instance_norm"


def fuse(graph: fx.Graph, fusion: Fusion, last: set[fx.Node]) -> None:
    """Rewrite the norms that can be rewritten, and report all. last: the nodes that were converted to channels last."""
    for node in calls(graph, functional.instance_norm):
        call = _call(node)
        x = value(call["input"])
        reason = _reason(x, value(node), call)
        end, activation, alpha, unproven = _end(node, call, fusion)
        name = _NAME if end is node else f"{_NAME} + {activation}"
        doubt = "" if node in last else "with channels first it was not measured"
        reason = reason or fusion.against(name, None if x is None else x[:1], doubt) or unproven
        if x is None or reason:
            fusion.report(name, node, x, reason)
            if x is not None and node in last and _is_of_input(call):
                _as_group_norm(graph, node, x, call)
            continue
        fusion.report(name, node, x)
        with graph.inserting_before(end):
            parameters = [
                call[name]
                or graph.call_function(torch.full, ((x.shape[1],), fill), {"dtype": wide(x), "device": x.device})
                for name, fill in _FILLS.items()
            ]
            shift = _without_bias(call["input"], node, fusion)
            tensors = call["input"], *parameters, shift
            found = graph.call_function(INSTANCE_NORM, (*tensors, call["eps"], activation, alpha))
            made = graph.call_function(operator.getitem, (found, 0))
        # of those that have channels last now, the strides are no more what eager's are
        replace(end, made, None if node in last else new_like(x))
        if end is not node:
            graph.erase_node(node)


def left(node: fx.Node) -> str:
    """Why such a norm is left to Inductor, whatever the gates say; "" where it is not."""
    call = _call(node)
    return _reason(value(call["input"]), value(node), call)


def _call(node: fx.Node) -> dict[str, Any]:
    defaults = {"weight": None, "bias": None, "use_input_stats": True, "momentum": 0.1, "eps": 1e-5}
    return arguments(node, "input", running_mean=None, running_var=None, **defaults)


_FILLS = {"weight": 1.0, "bias": 0.0}


def _end(node: fx.Node, call: dict[str, Any], fusion: Fusion) -> tuple[fx.Node, str, float, str]:
    """The last node, the activation and its alpha, if the activation behind the norm can be fused; else the norm and
    "none". And why even the norm alone may not be an operator.
    """
    after, tensors = only_user(node), [call[name] for name in ("input", *_FILLS)]
    found = activation_of(after)
    if after is None or found is None or fusion.proof.against((node, after), after, tensors, (), tensors):
        return node, "none", 0.0, fusion.proof.against((node,), node, tensors, (), tensors[:2])
    return after, *found, ""


CONVS = (
    *(torch.conv1d, torch.conv2d, torch.conv3d),
    *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
)


def _without_bias(x: fx.Node, norm: fx.Node, fusion: Fusion) -> fx.Node | None:
    """Remove the bias of a convolution that only feeds the norm: the norm cancels it. Returns the bias."""
    bias = arguments(x, "input", "weight", bias=None)["bias"] if x.target in CONVS else None
    if bias is None or only_user(x) is None or fusion.proof.other_modes(x, norm):
        return None
    if "bias" in x.kwargs:
        x.update_kwarg("bias", None)
    else:
        x.update_arg(2, None)
    return bias


def _is_of_input(call: dict[str, Any]) -> bool:
    return bool(call["use_input_stats"]) and call["running_mean"] is None and call["running_var"] is None


def _reason(x: torch.Tensor | None, y: torch.Tensor | None, call: dict[str, Any]) -> str:
    """Why gradkern does not compute the norm; "" if it does."""
    if x is None or y is None:
        return "its input is no tensor of the graph"
    if not _is_of_input(call):
        return "it has running statistics"
    if not y.requires_grad:
        return "no gradient of it is wanted"
    given = [value(call[name]) for name in _FILLS if call[name] is not None]
    types = {each.dtype for each in given if each is not None} or {wide(x)}
    if y.dtype != x.dtype or len(types) > 1:
        return "its types differ"
    return unregistered("BatchNormalization", x.device, T=x.dtype, T1=types.pop())


def _as_group_norm(graph: fx.Graph, node: fx.Node, x: torch.Tensor, call: dict[str, Any]) -> None:
    """As the group norm with a group for each channel: the same numbers, with channels in any order in memory."""
    tensors: list[Any] = [call[name] for name in ("input", *_FILLS)]
    with graph.inserting_before(node):
        if x.element_size() == 2:  # as autocast would, but that gives the result that type, too
            tensors = [each if each is None else graph.call_method("float", (each,)) for each in tensors]
        made = graph.call_function(functional.group_norm, (tensors[0], x.shape[1], *tensors[1:], call["eps"]))
        made = graph.call_method("to", (made, x.dtype))
    replace(node, made)
