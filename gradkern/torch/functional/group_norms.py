"""Group norm with a scale and a shift of each sample and channel and an activation behind it, in one pass each way.

The forward and the backward pass are GroupNormalization and GroupNormGrad, in the input's order of memory. All else is
PyTorch's own functions one after the other: of types that the contract does not have, of nothing, for second
derivatives, under a dispatch mode, where our autograd functions have no rule (`needs_pytorch`), and under
torch.compile.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, ShapeError
from gradkern.torch.counter import count_call
from gradkern.torch.direct import Direct, OpCall, is_eager, needs_pytorch
from gradkern.torch.functional.arguments import require_shape, require_tensor
from gradkern.torch.functional.convolutions import require_channels
from gradkern.torch.functional.norm_activation import ACTIVATIONS, is_alpha, require_activation
from gradkern.torch.functional.second_derivatives import differentiable
from gradkern.torch.operators import registered

Tensor = torch.Tensor
_GROUP_NORM = Direct("GroupNormalization", ("Y", "mean", "inv_std"))
_GROUP_NORM_GRAD = Direct("GroupNormGrad", ("dX", "dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad"))
_MOST_RANK = 5


def group_norm(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """functional.group_norm of the input, in its order of memory: channels-last stays channels-last.

    >>> x = torch.randn(2, 32, 8, 8).to(memory_format=torch.channels_last)
    >>> y = gradkern.torch.group_norm(x, 4, torch.ones(32), torch.zeros(32))
    >>> y.is_contiguous(memory_format=torch.channels_last)
    True
    """
    return group_norm_act(input, num_groups, weight, bias, eps, "none")


def group_norm_act(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    activation: str = "silu",
    sample_scale: Tensor | None = None,
    sample_shift: Tensor | None = None,
    activation_alpha: float = 0.01,
) -> Tensor:
    """activation(functional.group_norm(input, ...) * (1 + sample_scale) + sample_shift), with functional.group_norm's
    parameters.

    activation        "none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu" or "gelu"
    sample_scale, sample_shift   of shape (N, C), as a time embedding's; None has no effect
    activation_alpha  leaky_relu's slope below 0, or elu's alpha

    The result has the type and the order of memory of input, under autocast, too, where functional.group_norm widens
    it to float32.

    Raises ArgumentError for what is no tensor or number, ShapeError for shapes that do not fit, and ValueError for
    another activation.

    >>> x, ones, zeros = torch.randn(2, 32, 8, 8), torch.ones(32), torch.zeros(32)
    >>> gradkern.torch.group_norm_act(x, 4, ones, zeros, sample_scale=torch.zeros(2, 32)).shape
    torch.Size([2, 32, 8, 8])
    """
    require_activation("group_norm_act", activation)
    require_channels("group_norm_act", input)
    for name, value in (("eps", eps), ("activation_alpha", activation_alpha)):
        if not isinstance(value, (int, float, Real)):
            raise ArgumentError(f"group_norm_act: {name} is {value!r}; expected a number")
    samples, channels = input.shape[:2]
    if not isinstance(num_groups, int) or num_groups < 1 or channels % num_groups:
        raise ShapeError(f"group_norm_act: input has {channels} channels, which {num_groups!r} groups do not divide")
    of_channels, of_samples = (channels,), (samples, channels)
    for name, each, shape, what in (
        ("weight", weight, of_channels, "channel"),
        ("bias", bias, of_channels, "channel"),
        ("sample_scale", sample_scale, of_samples, "channel of each sample"),
        ("sample_shift", sample_shift, of_samples, "channel of each sample"),
    ):
        if each is not None:
            require_tensor("group_norm_act", name, each)
            require_shape("group_norm_act", name, each, shape, f"a number for each {what}")
    tensors = input, weight, bias, sample_scale, sample_shift
    how = num_groups, eps, activation, activation_alpha
    if not is_eager() or needs_pytorch(*tensors) or not _fits(*tensors, alpha=activation_alpha):
        return spelled_out(*tensors, *how).to(input.dtype)
    count_call("group_norm_act", input)
    return _GroupNormAct.apply(*tensors, how)  # pyright: ignore[reportReturnType]


def spelled_out(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    sample_scale: Tensor | None,
    sample_shift: Tensor | None,
    num_groups: int,
    eps: float,
    activation: str,
    alpha: float,
) -> Tensor:
    """By PyTorch's functions, with the types that they give."""
    t = functional.group_norm(x, num_groups, weight, bias, eps)
    shape = (*x.shape[:2], *(1,) * (x.dim() - 2))
    if sample_scale is not None:
        t = t * (1 + sample_scale.view(shape))
    if sample_shift is not None:
        t = t + sample_shift.view(shape)
    return ACTIVATIONS[activation](t, alpha)


def _fits(x: Tensor, weight: Tensor | None, bias: Tensor | None, *of_sample: Tensor | None, alpha: float) -> bool:
    """Whether the operators compute it: on this device, of these types, with this gradient."""
    if not is_alpha(alpha) or x.dim() > _MOST_RANK or not x.numel():
        return False
    if weight is None or bias is None or weight.dtype != bias.dtype:
        return False
    if any(each is not None and each.dtype != x.dtype for each in of_sample):
        return False
    return registered("GroupNormalization", x.device.type, T=x.dtype, M=weight.dtype)


def forward_pass(
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


def backward_pass(
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
    tensors = grad, x, mean, inv_std, weight, bias, sample_scale, sample_shift
    attributes = ("groups", num_groups), ("activation", activation), ("activation_alpha", alpha)
    return OpCall(_GROUP_NORM_GRAD, tuple(mask), tensors, attributes)


class _GroupNormAct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        *tensors, how = inputs
        y, *statistics = forward_pass(*tensors, *how).outputs()
        ctx.save_for_backward(*tensors, *statistics)
        ctx.how = how
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        *tensors, mean, inv_std = ctx.saved_tensors
        needs = ctx.needs_input_grad[:5]
        if torch.is_grad_enabled():
            return *differentiable(spelled_out(*tensors, *ctx.how).to(grad.dtype), tensors, needs, grad), None
        num_groups, _, activation, alpha = ctx.how
        x, *parameters = tensors
        call = backward_pass(grad, x, mean, inv_std, *parameters, num_groups, activation, alpha, list(needs))  # pyright: ignore[reportCallIssue]
        return *call.outputs(), None
