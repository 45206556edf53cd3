"""torch.ops.gradkern.batch_norm_act: batch norm in training, an addition and an activation, in one pass each way."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.ops.batch_norm import DERIVATIVE_FROM_SIGN
from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable, given
from gradkern.torch.direct import Direct
from gradkern.torch.operators import new_like

__all__ = ["BACKWARD", "FORWARD", "IN_PLACE"]

Tensor = torch.Tensor

_ARGUMENTS = "Tensor? residual, float momentum, float eps, str activation, float alpha"
_OUTPUTS = ("Y", "running_mean", "running_var", "saved_mean", "saved_inv_std")
_BATCH_NORM = Direct("BatchNormalization", _OUTPUTS, searched=True)
_BATCH_NORM_GRAD = Direct("BatchNormalizationGrad", ("dX", "dScale", "dBias", "dZ"), searched=True)


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    residual: Tensor | None,
    momentum: float,
    eps: float,
    activation: str,
    alpha: float,
) -> OpCall:
    """Y, running mean and variance, and the statistics of the batch that the backward pass takes."""
    tensors = x, weight, bias, running_mean, running_var, residual
    attributes = (
        *(("epsilon", eps), ("momentum", 1.0 - momentum), ("unbiased", 1)),
        *(("activation", activation), ("activation_alpha", alpha)),
    )
    return OpCall(_BATCH_NORM, (True,) * 5, tensors, attributes)


def _forward_in_place(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *more: Any) -> OpCall:
    """As _forward, but the running statistics are written where they are."""
    call = _forward(x, weight, bias, mean, variance, *more)
    return call._replace(out={"running_mean": mean, "running_var": variance}, results=(0, 3, 4))


def _fake_forward(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *more: Any) -> Any:
    y, *saved = _fake_forward_in_place(x, weight)
    return y, new_like(mean), new_like(variance), *saved


def _fake_forward_in_place(x: Tensor, weight: Tensor, *more: Any) -> Any:
    wide = torch.promote_types(x.dtype, torch.float32)
    return new_like(x), *[new_like(weight, wide) for _ in range(2)]


def _backward(
    grad: Tensor,
    grad_2: Tensor | None,
    x: Tensor,
    y: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    inv_std: Tensor,
    activation: str,
    alpha: float,
    mask: list[bool],
) -> OpCall:
    """The gradients of x, weight, bias and residual that the mask asks for."""
    tensors = grad, x, weight, mean, inv_std, bias, y, grad_2
    return OpCall(_BATCH_NORM_GRAD, tuple(mask), tensors, (("activation", activation), ("activation_alpha", alpha)))


def _fake_backward(grad: Tensor, grad_2: Any, x: Tensor, y: Any, weight: Tensor, *more: Any) -> tuple[Tensor, ...]:
    models = (x, weight, weight, x)
    return given(tuple([new_like(each) if wanted else None for each, wanted in zip(models, more[-1], strict=True)]), x)


FORWARD = define(
    "batch_norm_act(Tensor input, Tensor weight, Tensor bias, Tensor running_mean, Tensor running_var, "
    f"{_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _forward,
    _fake_forward,
)
"""output, running_mean, running_var, saved mean, saved 1 / standard deviation"""
IN_PLACE = define(
    "batch_norm_act_(Tensor input, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
    f"{_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
    _forward_in_place,
    _fake_forward_in_place,
)
"""output, saved mean, saved 1 / standard deviation"""
BACKWARD = define(
    "batch_norm_act_backward(Tensor grad, Tensor? grad_2, Tensor input, Tensor? output, Tensor weight, Tensor? bias, "
    "Tensor saved_mean, Tensor saved_inv_std, str activation, float alpha, bool[4] output_mask) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, _, _, residual, *_, activation, alpha = inputs
    y, *statistics = output
    ctx.activation, ctx.alpha, ctx.residual = activation, alpha, residual is not None
    # The mask of ReLU and leaky ReLU is computed again from x, but where a residual was added that nobody keeps.
    kept = (
        (y, None)
        if activation in DERIVATIVE_FROM_SIGN and ctx.residual
        else (None, None if activation == "none" else bias)
    )
    ctx.save_for_backward(x, weight, *kept, *statistics[2:])
    ctx.mark_non_differentiable(*statistics)  # else running_mean requires grad in the second step
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad
    if grad is None:
        return (None,) * len(needs)
    x, weight, y, bias, mean, inv_std = ctx.saved_tensors
    passed_on = ctx.residual and ctx.activation == "none"  # the residual's gradient is this one
    mask = [*needs[:3], needs[5] and not passed_on]
    found = BACKWARD(grad, None, x, y, weight, bias, mean, inv_std, ctx.activation, ctx.alpha, mask)
    dx, dweight, dbias, dz = [each if wanted else None for each, wanted in zip(found, mask, strict=True)]
    return dx, dweight, dbias, None, None, grad if passed_on and needs[5] else dz, None, None, None, None


differentiable(FORWARD, _differentiate, _setup)
