"""torch.ops.gradkern.add_layer_norm and add_rms_norm: a residual addition and the norm of the sum; both are results.

The two terms may be of two types, as under autocast: the first of 16 bits, the second and the sum of float32. Autograd
passes the gradient of the sum to the same backward pass. That adds it to the norm's, and gives the first term's
gradient in its own type: no other pass adds or casts. Where inductor_graphs.bias_gradients wants it, that pass sums the
result over its rows, too.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable, given
from gradkern.torch.direct import Attributes, Direct
from gradkern.torch.operators import new_like

__all__ = ["BACKWARDS", "BRANCH", "LAYER_NORM", "RMS_NORM", "SUM", "type_name"]

Tensor = torch.Tensor

_SKIP_LAYER_NORM = Direct("SkipLayerNormalization", ("output", "mean", "inv_std_var", "input_skip_bias_sum"))
_SKIP_RMS_NORM = Direct("SkipSimplifiedLayerNormalization", ("output", "inv_std_var", "input_skip_bias_sum"))
_GRADIENTS = ("X_grad_sum", "branch_grad")
_LAYER_NORM_GRAD = Direct("LayerNormalizationGrad", ("X_grad", "scale_grad", "bias_grad", *_GRADIENTS))
_RMS_NORM_GRAD = Direct("SimplifiedLayerNormalizationGrad", ("X_grad", "scale_grad", *_GRADIENTS))
SUM, BRANCH = -2, -1
"""Places among the results of a backward pass: the gradient summed over rows, and the first term's in its type."""


def type_name(dtype: torch.dtype) -> str:
    """As the registry has it."""
    return str(dtype).removeprefix("torch.")


def _layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float, dtype: str) -> OpCall:
    tensors = (x, residual, weight, bias)
    return OpCall(_SKIP_LAYER_NORM, (True,) * 4, tensors, _attributes(residual, eps, dtype), results=(0, 3, 1, 2))


def _fake_layer_norm(x: Tensor, residual: Tensor, *more: Any) -> tuple[Tensor, ...]:
    return *_fake_rms_norm(x, residual, *more), _statistics(residual)


def _layer_norm_backward(
    grad: Tensor,
    sum_grad: Tensor | None,
    total: Tensor,
    weight: Tensor,
    mean: Tensor,
    inv_std: Tensor,
    branch: str,
    mask: Any,
) -> OpCall:
    tensors = (grad, total, weight, mean, inv_std, _added(sum_grad, mask))
    return OpCall(_LAYER_NORM_GRAD, tuple(mask), tensors, _branch_type(branch, mask))


def _rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float, dtype: str) -> OpCall:
    tensors = (x, residual, weight)
    return OpCall(_SKIP_RMS_NORM, (True,) * 3, tensors, _attributes(residual, eps, dtype), results=(0, 2, 1))


def _fake_rms_norm(x: Tensor, residual: Tensor, *more: Any) -> tuple[Tensor, ...]:
    return new_like(x, getattr(torch, more[-1])), new_like(x, residual.dtype), _statistics(residual)


def _rms_norm_backward(
    grad: Tensor, sum_grad: Tensor | None, total: Tensor, weight: Tensor, inv_rms: Tensor, branch: str, mask: Any
) -> OpCall:
    tensors = (grad, total, weight, inv_rms, _added(sum_grad, mask))
    return OpCall(_RMS_NORM_GRAD, tuple(mask), tensors, _branch_type(branch, mask))


def _attributes(residual: Tensor, eps: float, dtype: str) -> Attributes:
    """With the type of the output, where it is not that of the residual."""
    own = dtype == type_name(residual.dtype)
    return (("epsilon", eps),) if own else (("epsilon", eps), ("output_type", dtype))


def _branch_type(branch: str, mask: Any) -> Attributes:
    return (("branch_grad_type", branch),) if mask[BRANCH] else ()


def _added(sum_grad: Tensor | None, mask: Any) -> Tensor | None:
    """What is added to the gradient, where that is wanted."""
    return sum_grad if mask[0] or mask[BRANCH] else None


def _statistics(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))


def _fake_backward(grad: Tensor, sum_grad: Any, total: Tensor, weight: Tensor, *more: Any) -> tuple[Tensor, ...]:
    branch, mask = more[-2:]
    parameters = [new_like(weight) if wanted else None for wanted in mask[1:BRANCH]]
    dx = new_like(total) if mask[0] else None
    return given((dx, *parameters, new_like(total, getattr(torch, branch)) if mask[BRANCH] else None), total)


LAYER_NORM = define(
    "add_layer_norm(Tensor input, Tensor residual, Tensor weight, Tensor? bias, float eps, str dtype) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    _layer_norm,
    _fake_layer_norm,
    rows=True,
)
"""output in this type, sum, mean and 1 / standard deviation of each row"""
RMS_NORM = define(
    "add_rms_norm(Tensor input, Tensor residual, Tensor weight, float eps, str dtype) -> (Tensor, Tensor, Tensor)",
    _rms_norm,
    _fake_rms_norm,
    rows=True,
)
"""output in this type, sum, 1 / root mean square of each row"""
_LAYER_NORM_BACKWARD = define(
    "add_layer_norm_backward(Tensor grad, Tensor? sum_grad, Tensor sum, Tensor weight, Tensor mean, Tensor inv_std, "
    "str branch, bool[5] output_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _layer_norm_backward,
    _fake_backward,
    rows=True,
)
_RMS_NORM_BACKWARD = define(
    "add_rms_norm_backward(Tensor grad, Tensor? sum_grad, Tensor sum, Tensor weight, Tensor inv_rms, "
    "str branch, bool[4] output_mask) -> (Tensor, Tensor, Tensor, Tensor)",
    _rms_norm_backward,
    _fake_backward,
    rows=True,
)
BACKWARDS = (_LAYER_NORM_BACKWARD, _RMS_NORM_BACKWARD)
"""Their last argument is the mask of wanted results. The first of those is the gradient of the sum; SUM and BRANCH."""


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, residual, weight = inputs[:3]
    _, total, *statistics = output
    ctx.save_for_backward(total, weight, *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)
    ctx.branch = x.dtype if x.dtype != residual.dtype else None


def _differentiate(ctx: Any, grad: Tensor | None, sum_grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    of_x, of_residual, *parameters = ctx.needs_input_grad[:-2]  # without eps and dtype
    branch = ctx.branch
    if grad is None:  # the norm's output is not used
        dx, found = sum_grad, [None] * len(parameters)
        of_branch = dx if branch is None or dx is None or not of_x else dx.to(branch)
    else:
        mask = [of_residual or (of_x and branch is None), *parameters, False, of_x and branch is not None]
        backward = _LAYER_NORM_BACKWARD if len(parameters) > 1 else _RMS_NORM_BACKWARD
        results = backward(grad, sum_grad, *ctx.saved_tensors, type_name(branch or ctx.saved_tensors[0].dtype), mask)
        dx, *found = [each if wanted else None for each, wanted in zip(results, mask, strict=True)]
        of_branch = dx if branch is None else found[BRANCH]
        found = found[:SUM]
    return of_branch if of_x else None, dx if of_residual else None, *found, None, None


differentiable(LAYER_NORM, _differentiate, _setup)
differentiable(RMS_NORM, _differentiate, _setup)
