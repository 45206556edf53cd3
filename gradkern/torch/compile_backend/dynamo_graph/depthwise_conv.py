"""Stage 1: F.conv1d and F.conv2d with a filter of its own for each channel, F.conv1d in any groups, and F.conv2d in
groups whose number of channels is no power of two, as one operator in each direction.

Of a convolution in groups along one axis PyTorch's cuDNN computes a group at a time: the positions' embedding of
wav2vec 2.0, of 16 groups and 128 taps, took 35 of a step's 49 ms on an H100. Of groups along two axes it transposes and
pads those that are no power of two: RegNetY-3.2GF's of 24 channels took 20 of a step's 40 ms on an H200.

conv_weight_gradient is for convolutions of few channels: inductor_graphs.each_graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site, off_gpu, unwanted
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, value
from gradkern.torch.compile_backend.operators import define, gradient, unregistered
from gradkern.torch.direct import OpCall
from gradkern.torch.functional.convolutions import CONV, CONV_GRAD, conv_attributes, is_depthwise

Tensor = torch.Tensor


def of_each_axis(sizes: Any, spatial: int) -> list[Any]:
    """One for each axis; PyTorch takes one for all."""
    given = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
    return given * spatial if len(given) == 1 else given


def _groups(x: Tensor, weight: Tensor) -> int:
    return x.shape[1] // weight.shape[1]


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int]
) -> OpCall:
    return OpCall(CONV, (True,), (x, weight, bias), conv_attributes(stride, padding, dilation, _groups(x, weight)))


def _backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    mask: list[bool],
) -> OpCall:
    attributes = conv_attributes(stride, padding, dilation, _groups(x, weight))
    return OpCall(CONV_GRAD, tuple(mask), (grad, x, weight), attributes)


def _of_weight(
    grad: Tensor, x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> OpCall:
    attributes = conv_attributes(stride, padding, dilation, groups)
    return OpCall(CONV_GRAD, (False, True, False), (grad, x, weight), attributes, results=(1,))


DEPTHWISE_CONV = define("depthwise_conv", _forward, ("y",))
gradient(DEPTHWISE_CONV, _backward, ("x", "weight", "bias"))
CONV_WEIGHT_GRADIENT = define("conv_weight_gradient", _of_weight, ("dweight",))

_DEPTHWISE, _GROUPED = "depthwise conv", "grouped conv"


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; such convolutions that cannot be are reported."""
    for node in calls(graph, torch.conv1d, torch.conv2d):
        call = arguments(node, "input", "weight", bias=None, stride=1, padding=0, dilation=1, groups=1)
        x, weight, y = value(call["input"]), value(call["weight"]), value(node)
        if weight is None or type(call["groups"]) is not int or call["groups"] == 1:
            continue
        if is_depthwise(weight, call["groups"]):
            fusion.take(_site(_DEPTHWISE, node, call, x, weight, y))
        elif weight.dim() == 3 or weight.shape[1].bit_count() > 1:
            fusion.take(_site(_GROUPED, node, call, x, weight, y))


def _site(name: str, node: fx.Node, call: dict[str, Any], x: Any, weight: torch.Tensor, y: torch.Tensor | None) -> Site:
    reason = _reason(y, x, weight, call)
    if reason or y is None:
        return Site(name, node, x, reason=reason)
    sizes = [of_each_axis(call[name], weight.dim() - 2) for name in ("stride", "padding", "dilation")]
    tensors = [call[name] for name in ("input", "weight", "bias")]
    values = [None if each is None else each.detach().to(y.dtype) for each in map(value, tensors)]
    added = None  # the bias that Inductor adds, as it does for PyTorch's: few of the kernels for groups can
    if name == _GROUPED:
        *tensors, added = tensors
        tensors, values = [*tensors, None], [*values[:2], None]

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        made = graph.call_function(DEPTHWISE_CONV, (*[_cast(graph, each, y.dtype) for each in tensors], *sizes))
        if added is None:
            return [made]
        bias = graph.call_method("view", (_cast(graph, added, y.dtype), (-1, *(1,) * (weight.dim() - 2))))
        return [graph.call_function(torch.add, (made, bias))]

    return Site(name, node, x, nodes=(node,), make=make, results={node: DEPTHWISE_CONV(*values, *sizes)})


def _reason(y: torch.Tensor | None, x: torch.Tensor | None, weight: torch.Tensor, call: dict[str, Any]) -> str:
    """Why gradkern does not compute the convolution; "" if it does."""
    if x is None or y is None:
        return "an argument is no tensor of the graph"
    reason = off_gpu(x) or ("it is not of a batch" if x.dim() != weight.dim() else unwanted(y))
    numbers = [each for name in ("stride", "padding", "dilation") for each in of_each_axis(call[name], 1)]
    if not reason and not all(type(each) is int for each in numbers):
        return "its padding is no number"
    return reason or unregistered("Conv", y.device, T=y.dtype)


def _cast(graph: fx.Graph, node: Any, dtype: torch.dtype) -> Any:
    """The tensor in this type, autocast's choice for the convolution."""
    found = value(node)
    return node if found is None or found.dtype == dtype else graph.call_method("to", (node, dtype))
