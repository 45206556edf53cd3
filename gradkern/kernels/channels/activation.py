"""The activations of norms, for kernels: relu(t) is t or 0; leaky_relu(t) is t or alpha t; silu(t) is t s(t),
s(t) = 1 / (1 + exp(-t)); relu6(t) is t between 0 and 6; hardswish(t) is t relu6(t + 3)/6; elu(t) is t or
alpha (exp(t) - 1); gelu(t) is t Phi(t). `result` and `native`: as gradkern.kernels.gelu has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32, float64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.activation_alpha import without_alpha
from gradkern.kernels.gelu import gelu_of, slope_of

_LOG2_E = 1.4426950408889634


def scale_of(activation: str, compute: str) -> float:
    """A factor that a kernel may have in t, and in t's gradient, where one instruction less per element pays off."""
    return -_LOG2_E if (activation, compute) == ("silu", "float32") else 1.0


def activation_of(activation: str, compute: str, result: str, native: bool, scale: float = 1.0) -> Callable[[Any], Any]:
    """The device function activate(t), of t in the type `compute`; NaN gives NaN. With the scale k of scale_of it is
    activate(k t).
    """
    if activation == "gelu":
        return gelu_of(False, compute, result, native)
    NAME, ALPHA = without_alpha(activation)
    FLOAT = float64 if compute == "float64" else float32
    sigmoid, scaled_sigmoid, SCALED = _sigmoid(compute), _scaled_sigmoid(scale), scale != 1

    @device_function
    def activate(t: Any) -> Any:
        if NAME == "relu":
            return FLOAT(0) if t <= FLOAT(0) else t
        if NAME == "leaky_relu":
            return t if t > FLOAT(0) else FLOAT(ALPHA) * t
        if SCALED:
            return t * scaled_sigmoid(t)
        if NAME == "silu":
            return t * sigmoid(t)
        if NAME == "relu6":
            return FLOAT(0) if t <= FLOAT(0) else FLOAT(6) if t >= FLOAT(6) else t
        if NAME == "hardswish":
            if t <= FLOAT(-3):
                return FLOAT(0)
            return t if t >= FLOAT(3) else t * (t + FLOAT(3)) * FLOAT(1 / 6)
        if NAME == "elu":
            return t if t > FLOAT(0) else FLOAT(ALPHA) * math.expm1(t)
        return t

    return activate


def derivative_of(
    activation: str, compute: str, result: str, native: bool, scale: float = 1.0
) -> Callable[[Any, Any], Any]:
    """The device function times_derivative(d, t): d times the derivative of activate at t. For relu and leaky_relu, t
    may also be activate(t): it has the same sign. As in PyTorch, if t is NaN relu gives d and leaky_relu gives alpha d.
    With the scale k of scale_of it is times_derivative(d, k t), and gives 1/k of that.
    """
    if activation == "gelu":
        return _times_slope(slope_of(False, compute, result, native))
    NAME, ALPHA = without_alpha(activation)
    FLOAT = float64 if compute == "float64" else float32
    sigmoid, scaled_sigmoid, SCALED = _sigmoid(compute), _scaled_sigmoid(1.0), scale != 1

    @device_function
    def times_derivative(d: Any, t: Any) -> Any:
        if NAME == "relu":
            return FLOAT(0) if t <= FLOAT(0) else d
        if NAME == "leaky_relu":
            return d if t > FLOAT(0) else FLOAT(ALPHA) * d
        if SCALED:
            s = scaled_sigmoid(t)
            return d * (s * (FLOAT(1 / scale) + t * (FLOAT(scale**-2) - FLOAT(scale**-2) * s)))
        if NAME == "silu":
            s = sigmoid(t)
            return d * (s * (FLOAT(1) + t * (FLOAT(1) - s)))
        if NAME == "relu6":
            return FLOAT(0) if t <= FLOAT(0) or t >= FLOAT(6) else d
        if NAME == "hardswish":
            if t < FLOAT(-3):
                return FLOAT(0)
            return d if t > FLOAT(3) else d * (t * FLOAT(1 / 3) + FLOAT(0.5))
        if NAME == "elu":
            return d if t > FLOAT(0) else d * (FLOAT(ALPHA) * math.exp(t))
        return d

    return times_derivative


def _times_slope(slope: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    @device_function
    def times_slope(d: Any, t: Any) -> Any:
        return d * slope(t)

    return times_slope


def _sigmoid(compute: str) -> Callable[[Any], Any]:
    DOUBLE = compute == "float64"
    EXPONENT = -_LOG2_E

    @device_function
    def sigmoid(t: Any) -> Any:
        if DOUBLE:
            return float64(1) / (float64(1) + math.exp(-t))
        return i.reciprocal_approximate(float32(1) + i.exp2_approximate(t * float32(EXPONENT)))

    return sigmoid


def _scaled_sigmoid(divisor: float) -> Callable[[Any], Any]:
    @device_function
    def scaled_sigmoid(t: Any) -> Any:
        """From the scaled t to sigmoid(t) / divisor."""
        return i.reciprocal_approximate(float32(divisor) * i.exp2_approximate(t) + float32(divisor))

    return scaled_sigmoid
