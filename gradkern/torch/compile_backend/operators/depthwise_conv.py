"""torch.ops.gradkern.depthwise_conv: a convolution in groups with its bias, whose gradients are one operator."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable, given
from gradkern.torch.direct import Attributes, Direct
from gradkern.torch.operators import new_like

__all__ = ["CONV_GRAD", "DEPTHWISE_CONV", "SIZES", "Sizes", "conv_attributes", "of_each_axis"]

Tensor = torch.Tensor
Sizes = list[int]

_CONV = Direct("Conv", ("Y",), searched=True)
CONV_GRAD = Direct("ConvGrad", ("dX", "dW", "dB"), searched=True)


def of_each_axis(sizes: Any, spatial: int) -> list[Any]:
    """One for each axis; PyTorch takes one for all."""
    given = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
    return given * spatial if len(given) == 1 else given


def conv_attributes(groups: int, stride: Sizes, padding: Sizes, dilation: Sizes) -> Attributes:
    """Those of Conv and ConvGrad."""
    pads = (*padding, *padding)
    return ("strides", tuple(stride)), ("pads", pads), ("dilations", tuple(dilation)), ("group", groups)


def _groups(x: Tensor, weight: Tensor) -> int:
    return x.shape[1] // weight.shape[1]


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, *sizes: Sizes) -> OpCall:
    return OpCall(_CONV, (True,), (x, weight, bias), conv_attributes(_groups(x, weight), *sizes))


def _fake_forward(x: Tensor, weight: Tensor, bias: Tensor | None, *sizes: Sizes) -> Tensor:
    return torch.ops.gradkern.Conv(x, weight, bias, **dict(conv_attributes(_groups(x, weight), *sizes)))


def _backward(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, dilation: Sizes, mask: list[bool]
) -> OpCall:
    attributes = conv_attributes(_groups(x, weight), stride, padding, dilation)
    return OpCall(CONV_GRAD, tuple(mask), (grad, x, weight), attributes)


def _fake_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    made = new_like(x), new_like(weight), weight.new_empty(weight.shape[0])
    return given(tuple([each if wanted else None for each, wanted in zip(made, rest[-1], strict=True)]), x)


SIZES = "int[] stride, int[] padding, int[] dilation"
DEPTHWISE_CONV = define(
    f"depthwise_conv(Tensor input, Tensor weight, Tensor? bias, {SIZES}) -> Tensor", _forward, _fake_forward
)
_BACKWARD = define(
    f"depthwise_conv_backward(Tensor grad, Tensor input, Tensor weight, {SIZES}, bool[3] output_mask) -> "
    "(Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, *ctx.sizes = inputs
    ctx.save_for_backward(x, weight)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    mask = list(ctx.needs_input_grad[:3])
    found = _BACKWARD(grad, *ctx.saved_tensors, *ctx.sizes, mask)
    return *[each if wanted else None for each, wanted in zip(found, mask, strict=True)], None, None, None


differentiable(DEPTHWISE_CONV, _differentiate, _setup)
