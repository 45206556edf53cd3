"""Norms and a GELU for JAX. XLA computes the forward pass and fuses it with its neighbours; gradkern, the gradients."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from gradkern.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from gradkern.jax.foreign_call import foreign_call

jax: Any = import_module("jax")  # types are checked where it is not installed
jnp: Any = import_module("jax.numpy")
Array = Any
"""A jax.Array, or JAX's tracer for one."""


def _differentiable(forward: Callable[..., Any], backward: Callable[..., Any], arrays: int) -> Callable[..., Any]:
    """A function of so many arrays, and options. forward: its results, and what backward takes behind the options."""

    def function(*arguments: Any) -> Any:
        return forward(*arguments)[0]

    options = range(arrays, len(signature(forward).parameters))
    made = jax.custom_vjp(function, nondiff_argnums=tuple(options))
    made.defvjp(forward, backward)
    return made


def layer_norm(x: Array, scale: Array, bias: Array | None = None, *, axis: int = -1, epsilon: float = 1e-5) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the dimensions from `axis` on, of the type of x.

    x is float16, bfloat16, float32 or float64; scale and bias have the shape of those dimensions, and the type of x,
    or float32 where that has 16 bits. Statistics are in float32, float64 for float64.
    """
    first = _axis("layer_norm", x, axis)
    _check("layer_norm", x, x.shape[first:], scale=scale, **({} if bias is None else {"bias": bias}))
    return _layer_norm(x, scale, bias, first, epsilon)


def _layer_norm_forward(x: Array, scale: Array, bias: Array | None, axis: int, epsilon: float) -> Any:
    wide, over = _wide(x), tuple(range(axis, x.ndim))
    mean = wide.mean(over, keepdims=True)
    inv_std = jax.lax.rsqrt(jnp.square(wide - mean).mean(over, keepdims=True) + epsilon)
    y = (wide - mean) * inv_std * scale
    return (y if bias is None else y + bias).astype(x.dtype), (x, scale, bias, mean, inv_std)


def _layer_norm_backward(axis: int, epsilon: float, saved: Any, grad: Array) -> Any:
    x, scale, bias, mean, inv_std = saved
    inputs = {"Y_grad": grad, "X": x, "scale": scale, "mean": mean, "inv_std_dev": inv_std}
    outputs = {"X_grad": x, "scale_grad": scale} | ({} if bias is None else {"bias_grad": scale})
    dx, dscale, *dbias = foreign_call("LayerNormalizationGrad", inputs, outputs, axis=axis)
    return dx, dscale, None if bias is None else dbias[0].astype(bias.dtype)


_layer_norm = _differentiable(_layer_norm_forward, _layer_norm_backward, 3)


def rms_norm(x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5) -> Array:
    """x / sqrt(mean of squares + epsilon) * scale over the dimensions from `axis` on; types are as in layer_norm."""
    first = _axis("rms_norm", x, axis)
    _check("rms_norm", x, x.shape[first:], scale=scale)
    return _rms_norm(x, scale, first, epsilon)


def _rms_norm_forward(x: Array, scale: Array, axis: int, epsilon: float) -> Any:
    wide = _wide(x)
    inv_std = jax.lax.rsqrt(jnp.square(wide).mean(tuple(range(axis, x.ndim)), keepdims=True) + epsilon)
    return (wide * inv_std * scale).astype(x.dtype), (x, scale, inv_std)


def _rms_norm_backward(axis: int, epsilon: float, saved: Any, grad: Array) -> Any:
    x, scale, inv_std = saved
    inputs = {"Y_grad": grad, "X": x, "scale": scale, "inv_std_var": inv_std}
    outputs = {"X_grad": x, "scale_grad": scale}
    return tuple(foreign_call("SimplifiedLayerNormalizationGrad", inputs, outputs, axis=axis))


_rms_norm = _differentiable(_rms_norm_forward, _rms_norm_backward, 2)


def bias_gelu(x: Array, bias: Array, approximate: bool = True) -> Array:
    """jax.nn.gelu(x + bias, approximate), computed in float32 at least; bias has the shape of x's last dimension."""
    if not isinstance(approximate, bool):
        raise AttributeValueError(f"bias_gelu: approximate is {approximate!r}; expected True or False")
    _check("bias_gelu", x, x.shape[_axis("bias_gelu", x, -1) :], bias=bias)
    return _bias_gelu(x, bias, approximate)


def _bias_gelu_forward(x: Array, bias: Array, approximate: bool) -> Any:
    return jax.nn.gelu(_wide(x) + bias, approximate).astype(x.dtype), (x, bias)


def _bias_gelu_backward(approximate: bool, saved: Any, grad: Array) -> Any:
    x, bias = saved
    name = "BiasFastGeluGrad_dX" if approximate else "BiasGeluGrad_dX"
    return tuple(foreign_call(name, {"dY": grad, "X": x, "B": bias}, {"dX": x, "dB": bias}))


_bias_gelu = _differentiable(_bias_gelu_forward, _bias_gelu_backward, 2)


def batch_norm(
    x: Array, scale: Array, bias: Array, *, axis: int = -1, epsilon: float = 1e-5
) -> tuple[Array, Array, Array]:
    """The norm of x over all dimensions but the channels', in training; and the mean and the variance of each channel,
    for running statistics. No gradient flows through these two.

    axis is -1 (N...C) or 1 (NC...). scale and bias have the shape (C,), and types as in layer_norm.
    """
    channels = _axis("batch_norm", x, axis)
    if x.ndim < 2 or channels not in (1, x.ndim - 1):
        raise AttributeValueError(f"batch_norm: axis is {axis} of {x.ndim} dimensions; expected 1 or -1 of two or more")
    _check("batch_norm", x, (x.shape[channels],), scale=scale, bias=bias)
    y, mean, variance = _batch_norm(x, scale, bias, channels, epsilon)
    return y, jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def _batch_norm_forward(x: Array, scale: Array, bias: Array, axis: int, epsilon: float) -> Any:
    wide, over = _wide(x), tuple(each for each in range(x.ndim) if each != axis)
    across = [-1 if each == axis else 1 for each in range(x.ndim)]
    mean = wide.mean(over)
    apart = wide - mean.reshape(across)
    variance = jnp.square(apart).mean(over)
    inv_std = jax.lax.rsqrt(variance + epsilon)
    y = apart * (inv_std * scale).reshape(across) + bias.reshape(across)
    return (y.astype(x.dtype), mean, variance), (x, scale, bias, mean, inv_std)


def _batch_norm_backward(axis: int, epsilon: float, saved: Any, grads: Any) -> Any:
    x, scale, bias, mean, inv_std = saved
    inputs = {"dY": grads[0], "X": x, "Scale": scale, "saved_mean": mean, "saved_inv_std": inv_std}
    outputs = {"dX": x, "dScale": scale, "dBias": scale}
    last = () if axis == 1 else ("dY", "X", "dX")
    dx, dscale, dbias = foreign_call("BatchNormalizationGrad", inputs, outputs, last=last)
    return dx, dscale, dbias.astype(bias.dtype)


_batch_norm = _differentiable(_batch_norm_forward, _batch_norm_backward, 3)


def _axis(function: str, x: Array, axis: int) -> int:
    """The dimension of an array, counted from the first."""
    if not hasattr(x, "dtype") or not hasattr(x, "ndim"):
        raise ArgumentError(f"{function}: x is a {type(x).__name__}; expected an array")
    if not -x.ndim <= axis < x.ndim:
        raise AttributeValueError(f"{function}: axis is {axis}; expected one of the {x.ndim} dimensions of x")
    return axis % x.ndim


def _check(function: str, x: Array, shape: tuple[int, ...], **parameters: Array) -> None:
    """Refuse here what the backward pass would refuse: XLA would report that as an internal error."""
    if x.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
        raise DTypeError(f"{function}: x has type {x.dtype.name}; expected float16, bfloat16, float32 or float64")
    types = (x.dtype.name, "float32") if x.dtype.itemsize == 2 else (x.dtype.name,)
    for name, each in parameters.items():
        if not hasattr(each, "dtype"):
            raise ArgumentError(f"{function}: {name} is a {type(each).__name__}; expected an array")
        if each.dtype.name not in types:
            raise DTypeError(f"{function}: {name} has type {each.dtype.name}; expected {' or '.join(types)}")
        if each.shape != shape:
            raise ShapeError(f"{function}: {name} has shape {each.shape}; expected {shape}, as x has {x.shape}")


def _wide(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
