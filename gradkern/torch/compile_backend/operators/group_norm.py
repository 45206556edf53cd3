"""torch.ops.gradkern.group_norm_act: group norm, a scale and a shift of each sample and channel, and an activation, in
one pass each way, in the input's order of memory.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import OpCall, define, differentiable, given
from gradkern.torch.direct import Direct
from gradkern.torch.operators import new_like

__all__ = ["GROUP_NORM"]

Tensor = torch.Tensor

_GROUP_NORM = Direct("GroupNormalization", ("Y", "mean", "inv_std"))
_GROUP_NORM_GRAD = Direct("GroupNormGrad", ("dX", "dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad"))


def _forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    sample_scale: Tensor | None,
    sample_shift: Tensor | None,
    num_groups: int,
    eps: float,
    activation: str,
    alpha: float,
) -> OpCall:
    attributes = (
        *(("num_groups", num_groups), ("epsilon", eps)),
        *(("activation", activation), ("activation_alpha", alpha)),
    )
    return OpCall(_GROUP_NORM, (True,) * 3, (x, weight, bias, sample_scale, sample_shift), attributes)


def _fake_forward(x: Tensor, *more: Any) -> tuple[Tensor, Tensor, Tensor]:
    wide, num_groups = torch.promote_types(x.dtype, torch.float32), more[4]
    mean, inv_std = (x.new_empty((x.shape[0], num_groups), dtype=wide) for _ in range(2))
    return new_like(x), mean, inv_std


def _backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    inv_std: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    sample_scale: Tensor | None,
    sample_shift: Tensor | None,
    num_groups: int,
    activation: str,
    alpha: float,
    mask: list[bool],
) -> OpCall:
    """The gradients of input, weight, bias, sample_scale and sample_shift that the mask asks for."""
    tensors = grad, x, mean, inv_std, weight, bias, sample_scale, sample_shift
    attributes = ("groups", num_groups), ("activation", activation), ("activation_alpha", alpha)
    return OpCall(_GROUP_NORM_GRAD, tuple(mask), tensors, attributes)


def _fake_backward(grad: Tensor, x: Tensor, mean: Tensor, inv_std: Tensor, weight: Any, *more: Any) -> Any:
    of_sample, mask = x[:, :, *(0,) * (x.dim() - 2)], more[-1]
    models = (x, weight, weight, of_sample, of_sample)
    made = [new_like(each) if wanted else None for each, wanted in zip(models, mask, strict=True)]
    return given((*made[:3], *[None if each is None else each.contiguous() for each in made[3:]]), x)


GROUP_NORM = define(
    "group_norm_act(Tensor input, Tensor? weight, Tensor? bias, Tensor? sample_scale, Tensor? sample_shift, "
    "int num_groups, float eps, str activation, float alpha) -> (Tensor, Tensor, Tensor)",
    _forward,
    _fake_forward,
)
"""output, saved mean, saved 1 / standard deviation"""
_GROUP_NORM_BACKWARD = define(
    "group_norm_act_backward(Tensor grad, Tensor input, Tensor saved_mean, Tensor saved_inv_std, Tensor? weight, "
    "Tensor? bias, Tensor? sample_scale, Tensor? sample_shift, int num_groups, str activation, float alpha, "
    "bool[5] output_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, *parameters, num_groups, _, activation, alpha = inputs
    _, *statistics = output
    ctx.how = num_groups, activation, alpha
    ctx.save_for_backward(x, *statistics, *parameters)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad
    if grad is None:
        return (None,) * len(needs)
    mask = list(needs[:5])
    found = _GROUP_NORM_BACKWARD(grad, *ctx.saved_tensors, *ctx.how, mask)
    return *[each if wanted else None for each, wanted in zip(found, mask, strict=True)], *(None,) * 4


differentiable(GROUP_NORM, _differentiate, _setup)
