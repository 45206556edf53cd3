"""torch.ops.gradkern.add_layer_norm and add_rms_norm: a residual addition and the norm of the sum, which is given out.

Autograd hands the gradient of the sum to the same backward pass, which adds it to the norm's: no pass adds up the two.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators import define, differentiable, empty, results
from gradkern.torch.operators import new_like

__all__ = ["LAYER_NORM", "RMS_NORM"]

Tensor = torch.Tensor


def _layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    outputs = ("output", "mean", "inv_std_var", "input_skip_bias_sum")
    y, mean, inv_std, total = results("SkipLayerNormalization", x, residual, weight, bias, outputs=outputs, epsilon=eps)
    return y, total, mean, inv_std


def _fake_layer_norm(x: Tensor, *more: Any) -> tuple[Tensor, ...]:
    return new_like(x), new_like(x), _statistics(x), _statistics(x)


def _layer_norm_backward(
    grad: Tensor, sum_grad: Tensor | None, total: Tensor, weight: Tensor, mean: Tensor, inv_std: Tensor, mask: Any
) -> tuple[Tensor, ...]:
    names = ("X_grad", "scale_grad", "bias_grad")
    return _gradients("LayerNormalizationGrad", names, mask, sum_grad, (grad, total, weight, mean, inv_std))


def _rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
    outputs = ("output", "inv_std_var", "input_skip_bias_sum")
    y, inv_rms, total = results("SkipSimplifiedLayerNormalization", x, residual, weight, outputs=outputs, epsilon=eps)
    return y, total, inv_rms


def _fake_rms_norm(x: Tensor, *more: Any) -> tuple[Tensor, ...]:
    return new_like(x), new_like(x), _statistics(x)


def _rms_norm_backward(
    grad: Tensor, sum_grad: Tensor | None, total: Tensor, weight: Tensor, inv_rms: Tensor, mask: Any
) -> tuple[Tensor, ...]:
    names = ("X_grad", "scale_grad")
    return _gradients("SimplifiedLayerNormalizationGrad", names, mask, sum_grad, (grad, total, weight, inv_rms))


def _statistics(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32))


def _gradients(name: str, names: Any, mask: Any, sum_grad: Tensor | None, inputs: tuple[Tensor, ...]) -> Any:
    wanted = tuple([each for each, asked in zip(names, mask, strict=True) if asked])
    found: Any = results(name, *inputs, sum_grad if mask[0] else None, outputs=wanted)
    return tuple([getattr(found, each) if each in wanted else empty(inputs[0]) for each in names])


def _fake_backward(grad: Tensor, sum_grad: Any, total: Tensor, weight: Tensor, *more: Any) -> tuple[Tensor, ...]:
    models = (total, weight, weight)
    return tuple([new_like(each) if asked else empty(total) for each, asked in zip(models, more[-1])])  # noqa: B905


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
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    _layer_norm_backward,
    _fake_backward,
    rows=True,
)
_RMS_NORM_BACKWARD = define(
    "add_rms_norm_backward(Tensor grad, Tensor? sum_grad, Tensor sum, Tensor weight, Tensor inv_rms, "
    "bool[2] output_mask) -> (Tensor, Tensor)",
    _rms_norm_backward,
    _fake_backward,
    rows=True,
)


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
        mask = [needs[0] or needs[1], *parameters]
        backward = _LAYER_NORM_BACKWARD if len(parameters) > 1 else _RMS_NORM_BACKWARD
        given = backward(grad, sum_grad, *ctx.saved_tensors, mask)
        dx, *found = [each if asked else None for each, asked in zip(given, mask, strict=True)]
    return dx if needs[0] else None, dx if needs[1] else None, *found, None


differentiable("add_layer_norm", _differentiate, _setup)
differentiable("add_rms_norm", _differentiate, _setup)
