"""torch.ops.gradkern.instance_norm_act: instance norm and an activation, in one pass each way.

It is a batch norm of each sample apart, with a launch for each: that reads the sample as a batch of one.

What is added to all elements of a channel before, as a convolution's bias is, changes neither output nor gradients, and
its own gradient is zero. So the operator takes it as `shift`, for autograd alone, and nobody need add it or sum up for
it what rounding makes of zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import define, differentiable, given
from gradkern.torch.direct import Direct
from gradkern.torch.operators import new_like

__all__ = ["BACKWARD", "INSTANCE_NORM"]

Tensor = torch.Tensor

_STATISTICS = ("saved_mean", "saved_inv_std")
_BATCH_NORM = Direct("BatchNormalization", ("Y", "running_mean", "running_var", *_STATISTICS), searched=True)
_BATCH_NORM_GRAD = Direct("BatchNormalizationGrad", ("dX", "dScale", "dBias"), searched=True)


class _OfSamples:
    """What a call asks for: several calls of gradkern."""

    def __init__(self, compute: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._compute, self._arguments = compute, arguments

    def answer(self) -> Any:
        return self._compute(*self._arguments)


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None, eps: float, activation: str, alpha: float
) -> tuple[Tensor, ...]:
    """The output, and mean and 1 / standard deviation of each channel of each sample."""
    y, mean, inv_std = made = _fake_forward(x)
    attributes = ("epsilon", eps), ("activation", activation), ("activation_alpha", alpha)
    for n in range(x.shape[0]):
        out = {"Y": y[n : n + 1], "saved_mean": mean[n], "saved_inv_std": inv_std[n]}
        _BATCH_NORM((True, False, False, True, True), (x[n : n + 1], weight, bias), attributes, out)
    return made


def _fake_forward(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    mean, inv_std = (x.new_empty(x.shape[:2], dtype=wide) for _ in range(2))
    return new_like(x), mean, inv_std


def _backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    inv_std: Tensor,
    activation: str,
    alpha: float,
    mask: list[bool],
) -> tuple[Tensor, ...]:
    """The gradients of x, weight and bias that the mask asks for."""
    samples = range(x.shape[0])
    attributes = ("activation", activation), ("activation_alpha", alpha)
    dx = new_like(x) if mask[0] else None
    sums = [weight.new_empty(x.shape[:2]) if wanted else None for wanted in mask[1:]]
    for n in samples:
        every = (None if dx is None else dx[n : n + 1], *[None if each is None else each[n] for each in sums])
        out = {name: each for name, each in zip(_BATCH_NORM_GRAD.outputs, every, strict=True) if each is not None}
        tensors = grad[n : n + 1], x[n : n + 1], weight, mean[n], inv_std[n], bias
        _BATCH_NORM_GRAD(tuple(mask), tensors, attributes, out)
    added = [None if each is None else each[0] if len(samples) == 1 else each.sum(0) for each in sums]
    return given((dx, *added), x)


def _fake_backward(grad: Tensor, x: Tensor, weight: Tensor, *more: Any) -> tuple[Tensor, ...]:
    models = (x, weight, weight)
    return given(tuple([new_like(each) if wanted else None for each, wanted in zip(models, more[-1], strict=True)]), x)


def _defined(schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    return define(schema, lambda *arguments: _OfSamples(compute, arguments), fake, rows=True)


INSTANCE_NORM = _defined(
    "instance_norm_act(Tensor input, Tensor weight, Tensor bias, Tensor? shift, float eps, str activation, "
    "float alpha) -> (Tensor, Tensor, Tensor)",
    _forward,
    _fake_forward,
)
"""output, saved mean, saved 1 / standard deviation"""
BACKWARD = _defined(
    "instance_norm_act_backward(Tensor grad, Tensor input, Tensor weight, Tensor? bias, Tensor saved_mean, "
    "Tensor saved_inv_std, str activation, float alpha, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, shift, _, activation, alpha = inputs
    _, *statistics = output
    ctx.activation, ctx.alpha = activation, alpha
    ctx.shift = None if shift is None else (shift.shape, {"dtype": shift.dtype, "device": shift.device})
    # the activation's mask is computed again from x
    ctx.save_for_backward(x, weight, None if activation == "none" else bias, *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    mask = list(ctx.needs_input_grad[:3])
    found = BACKWARD(grad, *ctx.saved_tensors, ctx.activation, ctx.alpha, mask)
    gradients = [each if wanted else None for each, wanted in zip(found, mask, strict=True)]
    shape, kind = ctx.shift or ((), {})
    of_shift = torch.zeros(shape, **kind) if ctx.needs_input_grad[3] else None
    return *gradients, of_shift, None, None, None


differentiable(INSTANCE_NORM, _differentiate, _setup)
