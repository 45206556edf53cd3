"""Layer norm and RMSNorm of a sum, with the sum as a second result: the addition and the norm in one pass each way.

The operator of the gradient adds the gradient that reaches the sum past the norm.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.direct import Direct
from gradkern.torch.functional.second_derivatives import differentiable, norm
from gradkern.torch.operators import registered

__all__ = ["added_norm", "fits"]

Tensor = torch.Tensor
_LAYER_NORM = Direct("SkipLayerNormalization", ("output", "mean", "inv_std_var", "input_skip_bias_sum"), searched=True)
_RMS_NORM = Direct("SkipSimplifiedLayerNormalization", ("output", "inv_std_var", "input_skip_bias_sum"), searched=True)
_GRADIENTS = "X_grad", "scale_grad", "bias_grad", "X_grad_sum", "branch_grad"
_LAYER_NORM_GRAD = Direct("LayerNormalizationGrad", _GRADIENTS, searched=True)
_RMS_NORM_GRAD = Direct(
    "SimplifiedLayerNormalizationGrad", tuple(each for each in _GRADIENTS if each != "bias_grad"), searched=True
)


def fits(x: Tensor, residual: Tensor, weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether the operators compute it: of these types, on this device, not compiled. dtype: of the norm."""
    if torch.compiler.is_compiling():
        return False
    if (residual.shape, residual.device) != (x.shape, x.device):
        return False
    branch, stream = _by_type(x, residual)
    types = {"T": stream.dtype, "S": branch.dtype, "G": dtype, "V": weight.dtype}
    return registered("SkipLayerNormalization", x.device.type, **types)


def added_norm(
    x: Tensor,
    residual: Tensor,
    shape: tuple[int, ...],
    weight: Tensor,
    bias: Tensor | None,
    eps: float | None,
    dtype: torch.dtype,
    *,
    centred: bool,
) -> tuple[Tensor, Tensor]:
    """The norm of x + residual over the last dimensions, of this type, and the sum; RMSNorm unless centred."""
    return _AddedNorm.apply(*_by_type(x, residual), weight, bias, shape, eps, dtype, centred)  # pyright: ignore[reportReturnType]


def _by_type(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """The summands, that of the sum's type last: the order of their addition changes nothing."""
    other = residual.dtype is not x.dtype and torch.promote_types(x.dtype, residual.dtype) is x.dtype
    return (residual, x) if other else (x, residual)


class _AddedNorm(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, branch: Tensor, stream: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        shape, eps, dtype, centred = rest
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.eps, ctx.centred = shape, eps, centred
        data = branch, stream, weight, bias
        if len(shape) != 1:
            columns = prod(shape)
            rows = *branch.shape[: branch.dim() - len(shape)], columns
            data = branch.reshape(rows), stream.reshape(rows), weight.reshape(columns), bias
            data = *data[:3], None if bias is None else bias.reshape(columns)
        attributes: tuple[tuple[str, Any], ...] = (("epsilon", eps),)
        if dtype is not stream.dtype:
            attributes = *attributes, ("output_type", _name(dtype))
        if centred:
            y, mean, inv_std, total = _LAYER_NORM((True,) * 4, data, attributes)
        else:
            mean = None
            y, inv_std, total = _RMS_NORM((True,) * 3, data[:3], attributes)
        if len(shape) != 1:
            y, total = y.view(branch.shape), total.view(branch.shape)
        ctx.save_for_backward(total, weight, bias, mean, inv_std)
        ctx.attributes = (("axis", branch.dim() - len(shape)),)
        ctx.branch = None if branch.dtype is stream.dtype else branch.dtype
        if ctx.branch is not None:
            ctx.attributes = *ctx.attributes, ("branch_grad_type", _name(branch.dtype))
        return y, total

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, past: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        total, weight, bias, mean, inv_std = ctx.saved_tensors
        of_branch, of_stream, of_weight, of_bias, *_ = ctx.needs_input_grad
        of_sum, of_two = of_branch or of_stream, ctx.branch is not None
        branch = dweight = dbias = None
        if grad is None:  # the sum alone was used
            dx = past
        elif torch.is_grad_enabled():
            y = norm(total, ctx.shape, weight, bias, ctx.eps, ctx.centred)
            leaves, needs = (total, weight, bias), (of_sum, of_weight, of_bias)
            dx, dweight, dbias = differentiable(y.to(grad.dtype), leaves, needs, grad)
            dx = dx if past is None or dx is None else dx + past
        else:
            past = past if of_sum else None
            of_x = (of_stream or not of_two) and of_sum
            more = False, of_two and of_branch
            if ctx.centred:
                inputs = (grad, total, weight, mean, inv_std, past)
                found = _LAYER_NORM_GRAD((of_x, of_weight, of_bias, *more), inputs, ctx.attributes)
                dx, dweight, dbias, _, branch = found
            else:
                inputs = (grad, total, weight, inv_std, past)
                dx, dweight, _, branch = _RMS_NORM_GRAD((of_x, of_weight, *more), inputs, ctx.attributes)
        if of_branch and branch is None and dx is not None:
            branch = dx.to(ctx.branch) if of_two else dx
        return branch, dx if of_stream else None, dweight, dbias, None, None, None, None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
