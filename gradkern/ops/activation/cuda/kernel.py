"""The kernels of activations' gradients: dX = dY times the slope, of the input X or of the output Y."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes
from gradkern.kernels.elementwise.kernel import elementwise_kernel
from gradkern.kernels.gelu import slope_of


def _number(types: ElementwiseTypes) -> Callable[[float], Any]:
    """A constant in the type of arithmetic."""
    return float if types.compute == "float64" else float32


def sigmoid_of(types: ElementwiseTypes) -> Callable[[Any], Any]:
    """The inline device function sigmoid(z): 1/(1 + exp(-z)), and 1 less that, without cancellation. exp is the
    device's own where 16 bits are stored.
    """
    ONE, LOG2_E = _number(types)(1), float32(1 / math.log(2))
    APPROXIMATE = types.outputs[0] in ("float16", "bfloat16")

    @device_function
    def sigmoid(z: Any) -> Any:
        e = i.exp2_approximate(-abs(z) * LOG2_E) if APPROXIMATE else math.exp(-abs(z))  # at most 1
        near, far = ONE / (ONE + e), e / (ONE + e)
        return (near, far) if z >= 0 else (far, near)

    return sigmoid


def _gelu(types: ElementwiseTypes) -> Callable[..., Any]:
    slope = slope_of(types.operator == "FastGeluGrad", types.compute, types.outputs[0], types.native_bfloat16)

    @device_function
    def gelu(d: Any, x: Any, _: Any, r: Any) -> Any:
        return d * slope(x)

    return gelu


def _others(types: ElementwiseTypes) -> dict[str, Callable[..., Any]]:
    ZERO, ONE, INFINITY = map(_number(types), (0, 1, math.inf))
    both = sigmoid_of(types)

    @device_function
    def quick_gelu(d: Any, x: Any, _: Any, r: Any) -> Any:
        z = r[0] * x
        s, rest = both(z)
        bend = z * rest if abs(z) < INFINITY else ZERO  # where x is finite and z is not, too
        return d * (s * (ONE + bend))

    @device_function
    def relu(d: Any, x: Any, _: Any, r: Any) -> Any:
        return d if x > ZERO else ZERO

    @device_function
    def leaky_relu(d: Any, y: Any, _: Any, r: Any) -> Any:
        return d if y > ZERO else r[0] * d

    @device_function
    def sigmoid(d: Any, y: Any, _: Any, r: Any) -> Any:
        return d * (y * (ONE - y))

    @device_function
    def tanh(d: Any, y: Any, _: Any, r: Any) -> Any:
        return d * ((ONE - y) * (ONE + y))  # 1 - y^2 would cancel near 1

    @device_function
    def dml_relu(x: Any, d: Any, _: Any, r: Any) -> Any:
        return relu(d, x, _, r)

    @device_function
    def dml_clip(x: Any, d: Any, _: Any, r: Any) -> Any:
        return ZERO if x <= r[0] or x >= r[1] else d

    return {
        "QuickGeluGrad": quick_gelu,
        "ReluGrad": relu,
        "LeakyReluGrad": leaky_relu,
        "SigmoidGrad": sigmoid,
        "TanhGrad": tanh,
        "DmlActivationReluGrad": dml_relu,
        "DmlElementWiseClipGrad": dml_clip,
        "DmlElementWiseClipGrad1": dml_clip,
    }


def build(types: ElementwiseTypes, config: ElementwiseConfig) -> Callable[..., None]:
    """The kernel for these types and this config."""
    is_gelu = types.operator in ("GeluGrad", "FastGeluGrad")
    return elementwise_kernel(types, config, _gelu(types) if is_gelu else _others(types)[types.operator])
