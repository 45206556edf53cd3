"""torch.ops.gradkern.conv_weight_gradient: the gradient of a convolution's filters, where no other is wanted."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define
from gradkern.torch.compile_backend.operators.depthwise_conv import CONV_GRAD, SIZES, Sizes, conv_attributes
from gradkern.torch.operators import new_like

__all__ = ["CONV_WEIGHT_GRADIENT"]

Tensor = torch.Tensor


def _ask(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> OpCall:
    attributes = conv_attributes(groups, stride, padding, dilation)
    return OpCall(CONV_GRAD, (False, True, False), (grad, x, weight), attributes, results=(1,))


def _fake(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Tensor:
    return new_like(weight)


CONV_WEIGHT_GRADIENT = define(
    f"conv_weight_gradient(Tensor grad, Tensor input, Tensor weight, {SIZES}, int groups) -> Tensor", _ask, _fake
)
