"""Batch norm with what comes after it, an added residual and an activation, in one pass each way.

In training the forward and the backward pass are BatchNormalization and BatchNormalizationGrad; the mask of relu, the
residual's gradient and the sums come out of one reading of the gradient. All else is PyTorch's own functions one after
the other: with running statistics, of types that the contract does not have, of nothing, for second derivatives, under
a dispatch mode, whose tensors may be fake, where our autograd functions have no rule (`needs_pytorch`), and under
torch.compile, whose backend sees norm, addition and activation and joins them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from numbers import Real
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, AttributeValueError
from gradkern.ops.batch_norm import DERIVATIVE_FROM_SIGN
from gradkern.torch.counter import count_call
from gradkern.torch.direct import Direct, OpCall, is_eager, needs_pytorch
from gradkern.torch.functional.arguments import require_tensor
from gradkern.torch.functional.convolutions import require_channels, require_values
from gradkern.torch.functional.second_derivatives import differentiable
from gradkern.torch.operators import registered

Tensor = torch.Tensor
_FORWARD = "BatchNormalization"
_FORWARD_PASS = Direct(_FORWARD, ("Y", "running_mean", "running_var", "saved_mean", "saved_inv_std"), searched=True)
_BACKWARD_PASS = Direct("BatchNormalizationGrad", ("dX", "dScale", "dBias", "dZ"), searched=True)
ACTIVATIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "none": lambda t, _: t,
    "relu": lambda t, _: functional.relu(t),
    "leaky_relu": functional.leaky_relu,
    "silu": lambda t, _: functional.silu(t),
    "relu6": lambda t, _: functional.relu6(t),
    "hardswish": lambda t, _: functional.hardswish(t),
    "elu": functional.elu,
    "gelu": lambda t, _: functional.gelu(t),
}
"""By their names in the contract: of a tensor and alpha."""


def require_activation(function: str, activation: Any) -> None:
    """Raise AttributeValueError, a ValueError, for an unknown activation."""
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise AttributeValueError(f"{function}: activation is {activation!r}; expected one of {known}")


def is_alpha(slope: float) -> bool:
    """Whether the operators take it for leaky_relu's and elu's: the output's sign has to be the input's."""
    return 0 <= slope < inf


def batch_norm_act(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    activation: str = "relu",
    residual: Tensor | None = None,
    activation_alpha: float = 0.01,
) -> Tensor:
    """activation(functional.batch_norm(input, ...) + residual), with functional.batch_norm's parameters.

    activation        "none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu" or "gelu"
    residual          of the shape of input; None: nothing is added
    activation_alpha  leaky_relu's slope below 0, and elu's factor there

    In training the running statistics are updated in place, as functional.batch_norm does. Under autocast too the
    result has the type of input and residual, as theirs has.

    Raises ArgumentError for what is no tensor or number, ShapeError for a tensor without channels, and ValueError for
    another activation, and in training for a batch of one value in each channel.

    >>> x, ones, zeros = torch.randn(4, 8, 6), torch.ones(8), torch.zeros(8)
    >>> gradkern.torch.batch_norm_act(x, None, None, ones, zeros, residual=x).min() >= 0
    tensor(True)
    """
    require_activation("batch_norm_act", activation)
    require_channels("batch_norm_act", input)
    if residual is not None:
        require_tensor("batch_norm_act", "residual", residual)
    for name, value in (("momentum", momentum), ("eps", eps), ("activation_alpha", activation_alpha)):
        if not isinstance(value, (int, float, Real)):
            raise ArgumentError(f"batch_norm_act: {name} is {value!r}; expected a number")
    parameters = (weight, bias, running_mean, running_var)
    how = residual, activation, activation_alpha
    own = training and is_eager() and not needs_pytorch(input, *parameters, residual)
    if not own or not _fits(input, *parameters, *how):
        t = functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        return ACTIVATIONS[activation](t if residual is None else t + residual, activation_alpha)
    require_values(input)
    rest = running_mean, running_var, momentum, eps, activation, activation_alpha
    count_call("batch_norm_act", input)
    return _BatchNormAct.apply(input, weight, bias, residual, rest)  # pyright: ignore[reportReturnType]


def _fits(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    residual: Tensor | None,
    activation: str,
    alpha: float,
) -> bool:
    """Whether the operators compute it: on this device, of these types, with this gradient."""
    if not is_alpha(alpha) or weight is None or bias is None or (running_mean is None) != (running_var is None):
        return False
    if residual is not None:
        joined = activation in ("none", *DERIVATIVE_FROM_SIGN)
        if not joined or residual.shape != x.shape or residual.dtype != x.dtype:
            return False
    types = {"T": x.dtype, "T1": weight.dtype}
    if running_mean is not None and running_var is not None:
        if running_mean.dtype != running_var.dtype:
            return False
        types["T2"] = running_mean.dtype
    return weight.dtype == bias.dtype and registered(_FORWARD, x.device.type, **types) and x.numel() > 0


def forward_pass(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
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
    return OpCall(_FORWARD_PASS, (True,) * 5, tensors, attributes)


def backward_pass(
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
    return OpCall(_BACKWARD_PASS, tuple(mask), tensors, (("activation", activation), ("activation_alpha", alpha)))


class _BatchNormAct(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, rest: tuple[Any, ...]
    ) -> Tensor:
        running_mean, running_var, momentum, eps, activation, alpha = rest
        tracked = running_mean is not None
        call = forward_pass(x, weight, bias, running_mean, running_var, residual, momentum, eps, activation, alpha)
        if tracked:
            call = call._replace(out={"running_mean": running_mean, "running_var": running_var})
        else:
            call = call._replace(needs=(True, False, False, True, True))
        y, _, _, mean, inv_std = call.outputs()
        # the output where a residual is in it, else what the input of the norm says: it is read anyway
        masked = y if activation in DERIVATIVE_FROM_SIGN and residual is not None else None
        ctx.save_for_backward(x, weight, bias, mean, inv_std, masked)
        ctx.eps, ctx.activation, ctx.alpha, ctx.added = eps, activation, alpha, residual is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, bias, mean, inv_std, masked = ctx.saved_tensors
        of_x, of_weight, of_bias, of_residual, _ = ctx.needs_input_grad
        needs, activation, alpha = (of_x, of_weight, of_bias, of_residual), ctx.activation, ctx.alpha
        if torch.is_grad_enabled():
            t = functional.batch_norm(x, None, None, weight, bias, True, 0.0, ctx.eps)
            residual = (
                torch.zeros_like(x, requires_grad=True) if ctx.added else None
            )  # any: its sum with t is not needed
            t = t if residual is None else t + residual
            slope = alpha if activation == "leaky_relu" else 0.0
            y = ACTIVATIONS[activation](t, alpha) if masked is None else torch.where(masked > 0, t, t * slope)
            return *differentiable(y, (x, weight, bias, residual), needs, grad), None
        dz = None
        if activation == "none":  # then the residual's is the gradient itself
            dz, needs = grad if of_residual else None, (of_x, of_weight, of_bias, False)
        if True not in needs:
            return None, None, None, dz, None
        shift = None if activation == "none" or masked is not None else bias
        call = backward_pass(grad, None, x, masked, weight, shift, mean, inv_std, activation, alpha, list(needs))
        dx, dweight, dbias, found = call.outputs()
        return dx, dweight, dbias, found if dz is None else dz, None
