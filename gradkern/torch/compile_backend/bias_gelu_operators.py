"""torch.ops.gradkern.bias_gelu: GELU of the product of a linear layer and its bias, whose gradient is that of both."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators import define, differentiable, empty, results
from gradkern.torch.operators import new_like

__all__ = ["BIAS_GELU"]

Tensor = torch.Tensor
_NAMES = {"none": ("BiasGelu", "BiasGeluGrad_dX"), "tanh": ("BiasFastGelu", "BiasFastGeluGrad_dX")}


def _forward(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    return results(_NAMES[approximate][0], x, bias, outputs=("C",)).C


def _fake_forward(x: Tensor, bias: Tensor, approximate: str) -> Tensor:
    return new_like(x)


def _backward(grad: Tensor, x: Tensor, bias: Tensor, approximate: str, mask: list[bool]) -> tuple[Tensor, Tensor]:
    outputs = tuple([name for name, asked in zip(("dX", "dB"), mask, strict=True) if asked])
    found: Any = results(_NAMES[approximate][1], grad, x, bias, outputs=outputs)
    return found.dX if mask[0] else empty(x), found.dB if mask[1] else empty(x)


def _fake_backward(grad: Tensor, x: Tensor, bias: Tensor, approximate: str, mask: list[bool]) -> tuple[Tensor, Tensor]:
    return new_like(x) if mask[0] else empty(x), new_like(bias) if mask[1] else empty(x)


BIAS_GELU = define(
    "bias_gelu(Tensor input, Tensor bias, str approximate) -> Tensor", _forward, _fake_forward, rows=True
)
_BACKWARD = define(
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
    given = _BACKWARD(grad, *ctx.saved_tensors, ctx.approximate, mask)
    return *[each if asked else None for each, asked in zip(given, mask, strict=True)], None


differentiable("bias_gelu", _differentiate, _setup)
