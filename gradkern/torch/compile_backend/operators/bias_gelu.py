"""torch.ops.gradkern.bias_gelu: GELU of the product of a linear layer and its bias, whose gradient is that of both."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable, given
from gradkern.torch.direct import Direct
from gradkern.torch.operators import new_like

__all__ = ["BACKWARD", "BIAS_GELU"]

Tensor = torch.Tensor

_GELU = {"none": Direct("BiasGelu", ("C",)), "tanh": Direct("BiasFastGelu", ("C",))}
_GELU_GRAD = {
    "none": Direct("BiasGeluGrad_dX", ("dX", "dB")),
    "tanh": Direct("BiasFastGeluGrad_dX", ("dX", "dB")),
}


def _forward(x: Tensor, bias: Tensor, approximate: str) -> OpCall:
    return OpCall(_GELU[approximate], (True,), (x, bias))


def _fake_forward(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    return new_like(x)


def _backward(grad: Tensor, x: Tensor, bias: Tensor, approximate: str, mask: list[bool]) -> OpCall:
    return OpCall(_GELU_GRAD[approximate], tuple(mask), (grad, x, bias))


def _fake_backward(grad: Tensor, x: Tensor, bias: Tensor, approximate: str, mask: list[bool]) -> tuple[Tensor, ...]:
    return given((new_like(x) if mask[0] else None, new_like(bias) if mask[1] else None), x)


BIAS_GELU = define(
    "bias_gelu(Tensor input, Tensor bias, str approximate) -> Tensor", _forward, _fake_forward, rows=True
)
BACKWARD = define(
    "bias_gelu_backward(Tensor grad, Tensor input, Tensor bias, str approximate, bool[2] output_mask) -> "
    "(Tensor, Tensor)",
    _backward,
    _fake_backward,
    rows=True,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, ctx.approximate = inputs
    ctx.save_for_backward(x, bias)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    mask = list(ctx.needs_input_grad[:2])
    found = BACKWARD(grad, *ctx.saved_tensors, ctx.approximate, mask)
    return *[each if wanted else None for each, wanted in zip(found, mask, strict=True)], None


differentiable(BIAS_GELU, _differentiate, _setup)
