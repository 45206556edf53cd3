"""Layer norm and RMSNorm of a sum, with the sum as a second result: the addition and the norm in one pass each way.

The operator of the gradient adds the gradient that reaches the sum past the norm.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.direct import Attributes, Direct, OpCall
from gradkern.torch.functional.second_derivatives import differentiable, norm
from gradkern.torch.operators import registered, type_name

Tensor = torch.Tensor
_LAYER_NORM = Direct("SkipLayerNormalization", ("output", "mean", "inv_std_var", "input_skip_bias_sum"))
_RMS_NORM = Direct("SkipSimplifiedLayerNormalization", ("output", "inv_std_var", "input_skip_bias_sum"))
_GRADIENTS = ("X_grad_sum", "branch_grad")
_LAYER_NORM_GRAD = Direct("LayerNormalizationGrad", ("X_grad", "scale_grad", "bias_grad", *_GRADIENTS))
_RMS_NORM_GRAD = Direct("SimplifiedLayerNormalizationGrad", ("X_grad", "scale_grad", *_GRADIENTS))
SUM, BRANCH = -2, -1
"""Places among the results of a backward pass: the gradient summed over rows, and the first term's in its type."""


def layer_norm_pass(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float, dtype: str) -> OpCall:
    """The norm of the sum, of this type, and the sum; mean and 1 / standard deviation of each row."""
    tensors = (x, residual, weight, bias)
    return OpCall(_LAYER_NORM, (True,) * 4, tensors, _attributes(residual, eps, dtype), results=(0, 3, 1, 2))


def layer_norm_backward(
    grad: Tensor,
    sum_grad: Tensor | None,
    total: Tensor,
    weight: Tensor,
    mean: Tensor,
    inv_std: Tensor,
    branch: str,
    mask: list[bool],
) -> OpCall:
    tensors = (grad, total, weight, mean, inv_std, _added(sum_grad, mask))
    return OpCall(_LAYER_NORM_GRAD, tuple(mask), tensors, _branch_type(branch, mask))


def rms_norm_pass(x: Tensor, residual: Tensor, weight: Tensor, eps: float, dtype: str) -> OpCall:
    """The norm of the sum, of this type, and the sum; 1 / root mean square of each row."""
    tensors = (x, residual, weight)
    return OpCall(_RMS_NORM, (True,) * 3, tensors, _attributes(residual, eps, dtype), results=(0, 2, 1))


def rms_norm_backward(
    grad: Tensor, sum_grad: Tensor | None, total: Tensor, weight: Tensor, inv_rms: Tensor, branch: str, mask: list[bool]
) -> OpCall:
    tensors = (grad, total, weight, inv_rms, _added(sum_grad, mask))
    return OpCall(_RMS_NORM_GRAD, tuple(mask), tensors, _branch_type(branch, mask))


def _attributes(residual: Tensor, eps: float, dtype: str) -> Attributes:
    """With the type of the output, where it is not that of the residual."""
    own = dtype == type_name(residual.dtype)
    return (("epsilon", eps),) if own else (("epsilon", eps), ("output_type", dtype))


def _branch_type(branch: str, mask: list[bool]) -> Attributes:
    return (("branch_grad_type", branch),) if mask[BRANCH] else ()


def _added(sum_grad: Tensor | None, mask: list[bool]) -> Tensor | None:
    """What is added to the gradient, where that is wanted."""
    return sum_grad if mask[0] or mask[BRANCH] else None


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
        name = type_name(dtype)
        call = layer_norm_pass(*data, eps, name) if centred else rms_norm_pass(*data[:3], eps, name)
        y, total, *statistics = call.outputs()
        if len(shape) != 1:
            y, total = y.view(branch.shape), total.view(branch.shape)
        ctx.save_for_backward(total, weight, bias, *statistics)
        ctx.axis = () if len(shape) == 1 else (("axis", branch.dim() - len(shape)),)
        ctx.branch = None if branch.dtype is stream.dtype else branch.dtype
        return y, total

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, past: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        total, weight, bias, *statistics = ctx.saved_tensors
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
            of_parameters = (of_weight, of_bias) if ctx.centred else (of_weight,)
            mask = [(of_stream or not of_two) and of_sum, *of_parameters, False, of_two and of_branch]
            backward: Any = layer_norm_backward if ctx.centred else rms_norm_backward
            call = backward(grad, past, total, weight, *statistics, type_name(ctx.branch or total.dtype), mask)
            call = call._replace(attributes=(*ctx.axis, *call.attributes)) if ctx.axis else call
            dx, dweight, *of_shift, _, branch = call.outputs()
            dbias = of_shift[0] if of_shift else None
        if of_branch and branch is None and dx is not None:
            branch = dx.to(ctx.branch) if of_two else dx
        return branch, dx if of_stream else None, dweight, dbias, None, None, None, None
