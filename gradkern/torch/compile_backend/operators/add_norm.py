"""torch.ops.gradkern.add_layer_norm and add_rms_norm: a residual addition and the norm of the sum; both are results.

Autograd passes the gradient of the sum to the same backward pass. That adds it to the norm's: no other pass adds the
two. Where inductor_graphs.bias_gradients wants it, that pass sums the result over its rows, too.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable, given
from gradkern.torch.direct import Direct
from gradkern.torch.operators import new_like

__all__ = ["BACKWARDS", "LAYER_NORM", "RMS_NORM"]

Tensor = torch.Tensor

_SKIP_LAYER_NORM = Direct("SkipLayerNormalization", ("output", "mean", "inv_std_var", "input_skip_bias_sum"))
_SKIP_RMS_NORM = Direct("SkipSimplifiedLayerNormalization", ("output", "inv_std_var", "input_skip_bias_sum"))
_LAYER_NORM_GRAD = Direct("LayerNormalizationGrad", ("X_grad", "scale_grad", "bias_grad", "X_grad_sum"))
_RMS_NORM_GRAD = Direct("SimplifiedLayerNormalizationGrad", ("X_grad", "scale_grad", "X_grad_sum"))


def _layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> OpCall:
    tensors, attributes = (x, residual, weight, bias), (("epsilon", eps),)
    return OpCall(_SKIP_LAYER_NORM, (True,) * 4, tensors, attributes, results=(0, 3, 1, 2))


def _fake_layer_norm(x: Tensor, *more: Any) -> tuple[Tensor, ...]:
    return new_like(x), new_like(x), _statistics(x), _statistics(x)


def _layer_norm_backward(
    grad: Tensor, sum_grad: Tensor | None, total: Tensor, weight: Tensor, mean: Tensor, inv_std: Tensor, mask: Any
) -> OpCall:
    return OpCall(_LAYER_NORM_GRAD, tuple(mask), (grad, total, weight, mean, inv_std, _added(sum_grad, mask)))


def _rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> OpCall:
    return OpCall(_SKIP_RMS_NORM, (True,) * 3, (x, residual, weight), (("epsilon", eps),), results=(0, 2, 1))


def _fake_rms_norm(x: Tensor, *more: Any) -> tuple[Tensor, ...]:
    return new_like(x), new_like(x), _statistics(x)


def _rms_norm_backward(
    grad: Tensor, sum_grad: Tensor | None, total: Tensor, weight: Tensor, inv_rms: Tensor, mask: Any
) -> OpCall:
    return OpCall(_RMS_NORM_GRAD, tuple(mask), (grad, total, weight, inv_rms, _added(sum_grad, mask)))


def _added(sum_grad: Tensor | None, mask: Any) -> Tensor | None:
    """What is added to the first gradient, where that is wanted."""
    return sum_grad if mask[0] else None


def _statistics(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))


def _fake_backward(grad: Tensor, sum_grad: Any, total: Tensor, weight: Tensor, *more: Any) -> tuple[Tensor, ...]:
    models = (total, weight, weight, weight)
    return given(tuple([new_like(each) if wanted else None for each, wanted in zip(models, more[-1])]), total)  # noqa: B905


LAYER_NORM = define(
    "add_layer_norm(Tensor input, Tensor residual, Tensor weight, Tensor? bias, float eps) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    _layer_norm,
    _fake_layer_norm,
    rows=True,
)
"""output, sum, mean and 1 / standard deviation of each row"""
RMS_NORM = define(
    "add_rms_norm(Tensor input, Tensor residual, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)",
    _rms_norm,
    _fake_rms_norm,
    rows=True,
)
"""output, sum, 1 / root mean square of each row"""
_LAYER_NORM_BACKWARD = define(
    "add_layer_norm_backward(Tensor grad, Tensor? sum_grad, Tensor sum, Tensor weight, Tensor mean, Tensor inv_std, "
    "bool[4] output_mask) -> (Tensor, Tensor, Tensor, Tensor)",
    _layer_norm_backward,
    _fake_backward,
    rows=True,
)
_RMS_NORM_BACKWARD = define(
    "add_rms_norm_backward(Tensor grad, Tensor? sum_grad, Tensor sum, Tensor weight, Tensor inv_rms, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    _rms_norm_backward,
    _fake_backward,
    rows=True,
)
BACKWARDS = (_LAYER_NORM_BACKWARD, _RMS_NORM_BACKWARD)
"""Their last argument is the mask of wanted results; the first of those is the gradient, the last its sum over rows."""


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, total, *statistics = output
    ctx.save_for_backward(total, inputs[2], *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, sum_grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad
    parameters = needs[2:-1]  # without eps
    if grad is None:  # the norm's output is not used
        dx, found = sum_grad, [None] * len(parameters)
    else:
        mask = [needs[0] or needs[1], *parameters, False]
        backward = _LAYER_NORM_BACKWARD if len(parameters) > 1 else _RMS_NORM_BACKWARD
        results = backward(grad, sum_grad, *ctx.saved_tensors, mask)
        dx, *found = [each if wanted else None for each, wanted in zip(results, mask, strict=True)][:-1]
    return dx if needs[0] else None, dx if needs[1] else None, *found, None


differentiable(LAYER_NORM, _differentiate, _setup)
differentiable(RMS_NORM, _differentiate, _setup)
