"""Functions with PyTorch's signatures whose backward passes are gradkern's, where `enable` cannot reach.

Each is PyTorch's forward pass and one operator of torch.ops.gradkern behind it, in an autograd.Function, so that
torch.compile traces and fuses the forward pass. Where PyTorch's would be several passes, as with two types, and nothing
traces it, training's is the registry's operator. Second derivatives go through PyTorch's own differentiable formulas,
and what our autograd functions have no rule for, such as transforms of torch.func, is all PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, AttributeValueError, ShapeError
from gradkern.torch.constants import filled
from gradkern.torch.counter import count_call
from gradkern.torch.direct import Direct, is_eager, needs_pytorch
from gradkern.torch.flags import autocast
from gradkern.torch.functional import second_derivatives
from gradkern.torch.functional.arguments import (
    norm_shape,
    require_float_type,
    require_floats,
    require_least,
    require_shape,
    require_type,
)
from gradkern.torch.functional.residual_norms import added_norm, fits
from gradkern.torch.functional.second_derivatives import differentiable
from gradkern.torch.operators import registered, type_name, wide

Tensor = torch.Tensor
GELU_GRAD = {
    "none": Direct("BiasGeluGrad_dX", ("dX", "dB")),
    "tanh": Direct("BiasFastGeluGrad_dX", ("dX", "dB")),
}
_NORMS = {
    True: Direct("LayerNormalization", ("Y", "Mean", "InvStdDev")),
    False: Direct("SimplifiedLayerNormalization", ("Y", "inv_std_var")),
}
"""By whether they are centred."""
_NORM_GRADS = {
    True: Direct("LayerNormalizationGrad", ("X_grad", "scale_grad", "bias_grad")),
    False: Direct("SimplifiedLayerNormalizationGrad", ("X_grad", "scale_grad")),
}
_INVERTIBLE_GRAD = Direct("InvertibleLayerNormalizationGrad", ("X_grad", "scale_grad", "bias_grad"))


def linear_gelu(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None = None,
    approximate: str = "none",
) -> Tensor:
    """gelu(linear(input, weight, bias)), as functional.linear and functional.gelu compute it.

    approximate  "none" or "tanh", as functional.gelu's

    Its backward pass reads the gradient once for both the gradient of the linear layer's output and of its bias. Under
    autocast it computes in autocast's type, as functional.linear does.

    Raises ArgumentError, DTypeError, ShapeError and AttributeValueError for what does not fit.

    >>> x, weight, bias = torch.randn(8, 64), torch.randn(256, 64), torch.zeros(256)
    >>> gradkern.torch.linear_gelu(x, weight, bias).shape
    torch.Size([8, 256])
    """
    if approximate not in GELU_GRAD:
        raise AttributeValueError(f'linear_gelu: approximate is {approximate!r}; expected "none" or "tanh"')
    require_floats("linear_gelu", {"bias": bias}, input=input, weight=weight)
    if needs_pytorch(input, weight, bias):
        return functional.gelu(functional.linear(input, weight, bias), approximate=approximate)
    if weight.dim() != 2 or input.shape[-1:] != weight.shape[1:]:
        raise ShapeError(
            f"linear_gelu: weight has shape {tuple(weight.shape)}; expected two dimensions, of which the second is the "
            f"last of input, {tuple(input.shape)}"
        )
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    require_shape("linear_gelu", "bias", bias, (weight.shape[0],), "a value for each row of weight")
    input, weight, bias = autocast(input.device.type, input, weight, bias)  # noqa: A001
    require_type("linear_gelu", "weight", weight, input.dtype)
    require_type("linear_gelu", "bias", bias, input.dtype)
    count_call("linear_gelu", input)
    return _LinearGelu.apply(input, weight, bias, approximate)  # pyright: ignore[reportReturnType]


class _LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, approximate: str) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        z = functional.linear(x, weight, bias)
        ctx.save_for_backward(x, weight, bias, z)
        ctx.approximate = approximate
        return functional.gelu(z, approximate=approximate)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, bias, z = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():  # for a second derivative
            z = functional.linear(x, weight, bias)
            dz = torch.ops.aten.gelu_backward(grad, z, approximate=ctx.approximate)
            dbias = _matrix(dz).sum(0) if needs[2] else None
        else:
            dz, dbias = GELU_GRAD[ctx.approximate]((True, needs[2]), (grad, z, filled(z, bias.shape, 0, bias.dtype)))
        dx = dz @ weight if needs[0] else None
        dweight = _matrix(dz).mT @ _matrix(x) if needs[1] else None
        return dx, dweight, dbias if needs[2] else None, None


def _matrix(rows: Tensor) -> Tensor:
    return rows.flatten(0, -2) if rows.dim() > 1 else rows[None]


@overload
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    residual: None = None,
) -> Tensor: ...


@overload
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    residual: Tensor,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]: ...


def layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    residual: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """functional.layer_norm, and input of 16 bits with parameters of float32: computed in float32, one rounding.

    The result has the type of the input, and so have parameters where the two types are any others. With a residual it
    is the norm of input + residual and that sum, for the layers that follow: one pass each way. One of the two may be
    float32 and the other of 16 bits, as under autocast: the sum is float32, and each gets a gradient of its own type.

    dtype  of the norm of a sum; without it that of the sum

    Raises ArgumentError, DTypeError and ShapeError for what does not fit.

    >>> branch, stream = torch.randn(2, 8, 64).unbind()
    >>> y, stream = gradkern.torch.layer_norm(branch, (64,), residual=stream)
    >>> y.shape == stream.shape
    True
    """
    return _norm("layer_norm", input, normalized_shape, weight, bias, eps, residual, dtype, True)


class _Norm(torch.autograd.Function):
    """Layer norm, or RMSNorm where there is no bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Any, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y, *statistics = _forward(ctx, x, shape, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, *statistics)
        ctx.shape, ctx.eps, ctx.attributes = shape, eps, _axis(x, shape)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, bias, *statistics = ctx.saved_tensors
        of_x, _, of_weight, of_bias, _ = ctx.needs_input_grad
        needs, dbias = (of_x, of_weight, of_bias), None
        if torch.is_grad_enabled():
            if bias is None:
                y, _ = _root_mean_squared(x, ctx.shape, weight, ctx.eps)
            else:
                y = second_derivatives.norm(x, ctx.shape, weight, bias, ctx.eps, True)
            dx, dweight, dbias = differentiable(y, (x, weight, bias), needs, grad)
        elif bias is not None:
            dx, dweight, dbias = _NORM_GRADS[True](needs, (grad, x, weight, *statistics), ctx.attributes)
        else:
            dx, dweight = _NORM_GRADS[False](needs[:2], (grad, x, weight, *statistics), ctx.attributes)
        return dx, None, dweight, dbias, None


def _norm(
    function: str,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
    residual: Tensor | None,
    dtype: torch.dtype | None,
    centred: bool,
) -> Any:
    """Layer norm, or RMSNorm, without a mean, of x or of x + residual; then the sum besides."""
    require_floats(function, {"weight": weight, "bias": bias, "residual": residual}, input=x)
    if dtype is not None and residual is None:
        raise ArgumentError(f"{function}: dtype is {dtype} without a residual; expected None, the type of the input")
    if dtype is not None:
        require_float_type(function, dtype)
    weight, bias = _beside(x, weight), _beside(x, bias)
    if eps is None and not centred:
        eps = torch.finfo(wide(x)).eps
    if needs_pytorch(x, weight, bias, residual):
        total = x if residual is None else x + residual
        y = second_derivatives.norm(total, tuple(normalized_shape), weight, bias, eps, centred)
        return y if residual is None else (y if dtype is None else y.to(dtype), total)
    shape = norm_shape(function, x, normalized_shape, weight=weight, bias=bias)
    if residual is not None:
        of_sum = torch.promote_types(x.dtype, residual.dtype)
        ones, of_norm = filled(x, shape, 1, of_sum) if weight is None else weight, dtype or of_sum
        if fits(x, residual, ones, of_norm) and (bias is None or bias.dtype is ones.dtype):
            count_call(function, x)
            return added_norm(x, residual, shape, ones, bias, eps, of_norm, centred=centred)
        total = x + residual
        return _norm(function, total, shape, weight, bias, eps, None, None, centred).to(of_norm), total
    weight = filled(x, shape, 1, x.dtype) if weight is None else weight
    if centred and bias is None:
        bias = filled(x, shape, 0, weight.dtype)
    count_call(function, x)
    return _Norm.apply(x, shape, weight, bias, eps)


def _beside(x: Tensor, parameter: Tensor | None) -> Tensor | None:
    """A norm's parameter in the input's type, unless one of both is float32 and the other of 16 bits."""
    if parameter is None:
        return None
    types = x.dtype, parameter.dtype
    if types[0] is types[1] or (torch.float32 in types and torch.float64 not in types):
        return parameter
    return parameter.to(x.dtype)


def _axis(x: Tensor, shape: tuple[int, ...]) -> Any:
    """The axis where normalization begins, for the operators of gradients."""
    return (("axis", x.dim() - len(shape)),)


def _forward(
    ctx: Any, x: Tensor, shape: tuple[int, ...], weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    """The output and the statistics that the gradient takes."""
    if bias is None:
        if not _is_one_pass(ctx, "SimplifiedLayerNormalization", x, weight):
            return _root_mean_squared(x, shape, weight, eps)
    elif (
        x.dtype == weight.dtype or bias.dtype != weight.dtype or not _is_one_pass(ctx, "LayerNormalization", x, weight)
    ):
        return _normalized(x, shape, weight, bias, eps)
    attributes: Any = (*_axis(x, shape), ("epsilon", eps))
    if x.dtype != weight.dtype:
        attributes = (*attributes, ("Y_type", type_name(x.dtype)))
    given, operator = (x, weight) if bias is None else (x, weight, bias), _NORMS[bias is not None]
    return operator((True,) * len(operator.outputs), given, attributes)


def _is_one_pass(ctx: Any, name: str, x: Tensor, weight: Tensor) -> bool:
    """Whether the registry's operator computes a forward pass: untraced, of a tensor that it takes, and in training, as
    else nothing need be compiled.
    """
    if type(x) is not Tensor or not is_eager() or True not in ctx.needs_input_grad or not x.is_contiguous():
        return False
    kind = "cuda" if x.is_cuda else x.device.type
    return registered(name, kind, T=x.dtype, G=x.dtype, V=weight.dtype)


def _normalized(x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The output, mean and inverse standard deviation, both of float32 at least."""
    if x.dtype == weight.dtype and (x.is_cuda or x.dtype in (torch.float32, torch.float64)):
        return torch.native_layer_norm(x, shape, weight, bias, eps)
    dtype = wide(x)
    y, mean, inv_std = torch.native_layer_norm(x.to(dtype), shape, weight.to(dtype), bias.to(dtype), eps)
    return y.to(x.dtype), mean, inv_std


def _root_mean_squared(x: Tensor, shape: Any, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    dtype = wide(x)
    over = tuple(range(x.dim() - len(shape), x.dim()))
    inv_rms = (x.to(dtype).square().mean(over, keepdim=True) + eps).rsqrt()
    return (x.to(dtype) * inv_rms * weight.to(dtype)).to(x.dtype), inv_rms


@overload
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    residual: None = None,
) -> Tensor: ...


@overload
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    residual: Tensor,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]: ...


def rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    residual: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """functional.rms_norm, and input of 16 bits with a weight of float32: computed in float32, one rounding.

    The result has the type of the input; with a residual it is as in layer_norm. Without eps it is the smallest step
    from 1 in the type of the arithmetic, as PyTorch's is.

    Raises ArgumentError, DTypeError and ShapeError for what does not fit.

    >>> gradkern.torch.rms_norm(torch.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.8485, 1.1314]])
    """
    return _norm("rms_norm", input, normalized_shape, weight, None, eps, residual, dtype, False)


def invertible_layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    least: float = 1e-3,
) -> Tensor:
    """Layer norm that keeps its output for the backward pass in place of its input.

    That saves memory where the output is kept anyway, as by a linear layer behind it, and nobody else keeps the input.
    The normalized input is rebuilt as (output - bias)/weight, so its error is that of the output over the weight.
    Weights nearer to zero than `least` act as if they were `least` away from it, forward and backward: a weight of
    zero, as some networks begin with, is no division by zero, and still learns.

    The result has the type of the input, under autocast too, and the parameters are converted to it. It has no second
    derivative: the input's size does not follow from the output.

    Raises ArgumentError, DTypeError, ShapeError and AttributeValueError for what does not fit.

    >>> gradkern.torch.invertible_layer_norm(torch.tensor([[1.0, 3.0]]), (2,), torch.ones(2), torch.zeros(2))
    tensor([[-1.0000,  1.0000]])
    """
    require_floats("invertible_layer_norm", input=input, weight=weight, bias=bias)
    require_least("invertible_layer_norm", least)
    weight, bias = weight.to(input.dtype), bias.to(input.dtype)
    away = torch.where(weight < 0, -least, least).to(weight.dtype)
    weight = torch.where(weight.abs() < least, away + (weight - weight.detach()), weight)
    if needs_pytorch(input, weight, bias):
        return second_derivatives.norm(input, tuple(normalized_shape), weight, bias, eps, True)
    shape = norm_shape("invertible_layer_norm", input, normalized_shape, weight=weight, bias=bias)
    count_call("invertible_layer_norm", input)
    return _InvertibleLayerNorm.apply(input, shape, weight, bias, eps)  # pyright: ignore[reportReturnType]


class _InvertibleLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y, _, inv_std = _normalized(x, shape, weight, bias, eps)
        ctx.save_for_backward(y, weight, bias, inv_std)
        ctx.attributes = _axis(x, shape)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled():
            raise RuntimeError("invertible_layer_norm has no second derivative; use layer_norm")
        y, weight, bias, inv_std = ctx.saved_tensors
        of_x, _, of_weight, of_bias, _ = ctx.needs_input_grad
        needs = of_x, of_weight, of_bias
        dx, dweight, dbias = _INVERTIBLE_GRAD(needs, (grad, y, weight, bias, inv_std), ctx.attributes)
        return dx, None, dweight, dbias, None
