"""Convolution and batch norm as functions: for one place of a model, where `enable` would take every one of them.

The forward pass of a convolution is PyTorch's, as its cuDNN is as fast; but depthwise ones on a GPU are gradkern's own:
for those of ConvNeXt-T and EfficientNet-B0, bfloat16 channels-last on an H200, PyTorch takes 1.1 to 3.6 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from numbers import Integral
from operator import index
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, ShapeError
from gradkern.torch.counter import count_call
from gradkern.torch.direct import Attributes, Direct, needs_pytorch
from gradkern.torch.flags import autocast
from gradkern.torch.functional.arguments import require_tensor
from gradkern.torch.operators import registered

Tensor = torch.Tensor
Numbers = int | Sequence[int]
_PYTORCHS: dict[int, Any] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
CONV = Direct("Conv", ("Y",), searched=True)
CONV_GRAD = Direct("ConvGrad", ("dX", "dW", "dB"), searched=True)
_BATCH_NORM_GRAD = Direct("BatchNormalizationGrad", ("dX", "dScale", "dBias"), searched=True)


def conv1d(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """functional.conv1d. Its gradients are gradkern's for a batch that is padded by numbers, else PyTorch's.

    >>> x, weight = torch.randn(2, 8, 16), torch.randn(4, 8, 3, requires_grad=True)
    >>> gradkern.torch.conv1d(x, weight, padding=1).sum().backward()
    >>> weight.grad.shape == weight.shape
    True
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """functional.conv2d. Its gradients are gradkern's for a batch that is padded by numbers, else PyTorch's.

    >>> x, weight = torch.randn(2, 8, 16, 16), torch.randn(4, 8, 3, 3, requires_grad=True)
    >>> gradkern.torch.conv2d(x, weight, padding=1).sum().backward()
    >>> weight.grad.shape == weight.shape
    True
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> Tensor:
    """functional.conv3d. Its gradients are gradkern's for a batch that is padded by numbers, else PyTorch's.

    >>> x, weight = torch.randn(2, 8, 16, 16, 16), torch.randn(4, 8, 3, 3, 3, requires_grad=True)
    >>> gradkern.torch.conv3d(x, weight, padding=1).sum().backward()
    >>> weight.grad.shape == weight.shape
    True
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv(spatial: int, x: Tensor, weight: Tensor, bias: Tensor | None, *sizes: Any) -> Tensor:
    *given, groups = sizes
    if not isinstance(x, Tensor) or x.dim() != spatial + 2 or isinstance(given[1], str):
        return _PYTORCHS[spatial](x, weight, bias, *sizes)
    of_axes = [_of_axes(spatial, *each) for each in zip(("stride", "padding", "dilation"), given, strict=True)]
    x, weight, bias = autocast(x.device.type, x, weight, bias)
    # a backend sees a convolution, and has operators of its own
    if torch.compiler.is_compiling() or needs_pytorch(x, weight, bias):
        return _PYTORCHS[spatial](x, weight, bias, *of_axes, groups)
    count_call(f"conv{spatial}d", x)
    return _Conv.apply(x, weight, bias, _call_of(spatial, *of_axes, groups))  # pyright: ignore[reportReturnType]


def _of_axes(spatial: int, name: str, value: Any) -> Any:
    """A number, or a tuple of numbers: a key to look up."""
    if isinstance(value, (int, Integral)):
        return value
    try:
        return tuple(value)
    except TypeError:
        raise _no_sizes(spatial, name, value) from None


def _integers(spatial: int, name: str, value: Any) -> tuple[int, ...]:
    try:
        return tuple(map(index, (value,) if isinstance(value, Integral) else value))
    except TypeError:
        raise _no_sizes(spatial, name, value) from None


def _no_sizes(spatial: int, name: str, value: Any) -> ArgumentError:
    return ArgumentError(f"conv{spatial}d: {name} is {value!r}; expected an integer, or a tuple of {spatial}")


@lru_cache(maxsize=1024)
def _call_of(spatial: int, stride: Any, padding: Any, dilation: Any, groups: int) -> tuple[tuple[Any, ...], Any]:
    """The arguments of aten, and the attributes of the registry's operators. One number is one for every axis."""
    given = ("stride", stride), ("padding", padding), ("dilation", dilation)
    sizes = [_integers(spatial, *each) for each in given]
    strides, pads, dilations = (n * spatial if len(n) == 1 else n for n in sizes)
    return (strides, pads, dilations, False, (0,) * spatial, groups), conv_attributes(strides, pads, dilations, groups)


def conv_attributes(stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> Attributes:
    """Of the registry's operators."""
    sizes = ("strides", tuple(stride)), ("pads", (*padding, *padding)), ("dilations", tuple(dilation))
    return *sizes, ("group", groups)


def is_depthwise(weight: Tensor, groups: int) -> bool:
    """Whether each channel has one filter of its own: what gradkern has kernels for."""
    return groups > 1 and weight.shape[0] == groups and weight.shape[1] == 1


def _own_forward(x: Tensor, weight: Tensor, groups: int) -> bool:
    """Whether the forward pass is gradkern's."""
    return x.is_cuda and is_depthwise(weight, groups) and registered("Conv", "cuda", T=x.dtype)


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, call: tuple[Any, Any]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x, weight)
        ctx.call = sizes, attributes = call
        if _own_forward(x, weight, sizes[-1]) and x.numel():
            return CONV((True,), (x, weight) if bias is None else (x, weight, bias), attributes)[0]
        return torch.convolution(x, weight, bias, *sizes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        needs, (sizes, attributes) = ctx.needs_input_grad[:3], ctx.call
        if torch.is_grad_enabled() or not x.numel():
            found = torch.ops.aten.convolution_backward(grad, x, weight, [weight.shape[0]], *sizes, list(needs))
            found = [each if need else None for each, need in zip(found, needs, strict=True)]
        else:
            found = CONV_GRAD(needs, (grad, x, weight), attributes)
        return *found, None


def batch_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """functional.batch_norm. In training its backward pass is gradkern's; with running statistics, and of an empty
    batch, PyTorch's.

    Raises ArgumentError for what is no tensor, ShapeError for one without channels, and ValueError in training for a
    batch of one value in each channel.

    >>> x, weight, bias = torch.randn(4, 8, 6), torch.ones(8), torch.zeros(8)
    >>> y = gradkern.torch.batch_norm(x, None, None, weight, bias, training=True)
    >>> y.var((0, 2), correction=0).allclose(torch.ones(8), atol=1e-3)
    True
    """
    require_channels("batch_norm", input)
    if (
        not training
        or weight is None
        or bias is None
        or needs_pytorch(input, weight, bias, running_mean, running_var)
        or not input.numel()
        or not eps > 0
    ):
        return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    require_values(input)
    count_call("batch_norm", input)
    return _BatchNorm.apply(input, weight, bias, running_mean, running_var, momentum, eps)  # pyright: ignore[reportReturnType]


def require_channels(function: str, x: Any) -> None:
    """Raise ArgumentError for what is no tensor, and ShapeError for one of fewer than two axes."""
    require_tensor(function, "input", x)
    if x.dim() < 2:
        raise ShapeError(f"{function}: input has shape {tuple(x.shape)}; expected (N, C, ...)")


def require_values(x: Tensor) -> None:
    """Raise ValueError, as functional.batch_norm does, where each channel has one value."""
    if x.shape[0] * prod(x.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.shape}")


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        running_mean, running_var, momentum, eps = rest
        compiling = torch.compiler.is_compiling()  # torch.compile does not know the functions that cost the host less
        functions: Any = torch.ops.aten if compiling else torch
        cudnn = torch.backends.cudnn.enabled if compiling else torch._C._get_cudnn_enabled()
        y, mean, inv_std, *_ = functions._batch_norm_impl_index(
            x, weight, bias, running_mean, running_var, True, momentum, eps, cudnn
        )
        ctx.save_for_backward(x, weight, mean, inv_std)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, mean, inv_std = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            found = torch.ops.aten.native_batch_norm_backward(
                grad, x, weight, None, None, mean, inv_std, True, ctx.eps, list(needs)
            )
            found = [each if need else None for each, need in zip(found, needs, strict=True)]
        else:
            found = _BATCH_NORM_GRAD(needs, (grad, x, weight, mean, inv_std))
        return *found, None, None, None, None
