"""Layer norm and RMSNorm of a sum, with the sum as a second result: the addition and the norm in one pass each way.

The operator of the gradient adds the gradient that reaches the sum past the norm.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.direct import Direct
from gradkern.torch.functional.second_derivatives import differentiable, layer_norm, rms_norm
from gradkern.torch.operators import registered

__all__ = ["added_norm", "fits"]

Tensor = torch.Tensor
_LAYER_NORM = Direct("SkipLayerNormalization", ("output", "mean", "inv_std_var", "input_skip_bias_sum"), searched=True)
_RMS_NORM = Direct("SkipSimplifiedLayerNormalization", ("output", "inv_std_var", "input_skip_bias_sum"), searched=True)
_LAYER_NORM_GRAD = Direct("LayerNormalizationGrad", ("X_grad", "scale_grad", "bias_grad"), searched=True)
_RMS_NORM_GRAD = Direct("SimplifiedLayerNormalizationGrad", ("X_grad", "scale_grad"), searched=True)


def fits(x: Tensor, residual: Tensor, weight: Tensor) -> bool:
    """Whether the operators compute it: of these types, on this device, not compiled."""
    if torch.compiler.is_compiling():
        return False
    alike = (residual.shape, residual.dtype, residual.device) == (x.shape, x.dtype, x.device)
    return alike and registered("SkipLayerNormalization", x.device.type, T=x.dtype, V=weight.dtype)


def added_norm(
    x: Tensor, residual: Tensor, shape: tuple[int, ...], weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The norm of x + residual over the last dimensions, and the sum; without a bias it is RMSNorm."""
    return _AddedNorm.apply(x, residual, weight, bias, shape, eps)  # pyright: ignore[reportReturnType]


class _AddedNorm(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        shape, eps = rest
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.eps = shape, eps
        data = x, residual, weight, bias
        if len(shape) != 1:
            columns = prod(shape)
            rows = *x.shape[: x.dim() - len(shape)], columns
            data = x.reshape(rows), residual.reshape(rows), weight.reshape(columns), bias
            data = *data[:3], None if bias is None else bias.reshape(columns)
        attributes = (("epsilon", eps),)
        if bias is None:
            mean = None
            y, inv_std, total = _RMS_NORM((True,) * 3, data[:3], attributes)
        else:
            y, mean, inv_std, total = _LAYER_NORM((True,) * 4, data, attributes)
        if len(shape) != 1:
            y, total = y.view(x.shape), total.view(x.shape)
        ctx.save_for_backward(total, weight, bias, mean, inv_std)
        ctx.attributes = (("axis", x.dim() - len(shape)),)
        return y, total

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, past: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        total, weight, bias, mean, inv_std = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if grad is None:  # the sum alone was used
            return past, past, None, None, None, None
        needed = (needs[0] or needs[1], needs[2], needs[3])
        if torch.is_grad_enabled():
            if bias is None:
                y = rms_norm(total, ctx.shape, weight, ctx.eps)
            else:
                y = layer_norm(total, ctx.shape, weight, bias, ctx.eps)
            dx, dweight, dbias = differentiable(y, (total, weight, bias), needed, grad)
            dx = dx if past is None or dx is None else dx + past
        else:
            past = past if needed[0] else None
            dbias = None
            if mean is None:
                inputs = (grad, total, weight, inv_std, past)
                dx, dweight = _RMS_NORM_GRAD(needed[:2], inputs, ctx.attributes)
            else:
                inputs = (grad, total, weight, mean, inv_std, past)
                dx, dweight, dbias = _LAYER_NORM_GRAD(needed, inputs, ctx.attributes)
        return dx if needs[0] else None, dx if needs[1] else None, dweight, dbias, None, None
