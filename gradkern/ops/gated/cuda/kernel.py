"""The kernels of gated linear units and of their gradients: products of two arrays, one of them through a gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.cuda import float32

from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes
from gradkern.kernels.elementwise.kernel import elementwise_kernel
from gradkern.kernels.gelu import gelu_of, slope_of
from gradkern.ops.activation.cuda.kernel import sigmoid_of


def _gate(types: ElementwiseTypes, approximate: str | None) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Inline device functions of the gate's value alone, and of its value and slope."""
    if approximate is not None:
        how = approximate == "tanh", types.compute, types.outputs[0], types.native_bfloat16
        gelu, gelu_slope = gelu_of(*how), slope_of(*how)

        @device_function
        def gelu_and_slope(a: Any) -> Any:
            return gelu(a), gelu_slope(a)

        return gelu, gelu_and_slope
    ONE, sigmoid = 1.0 if types.compute == "float64" else float32(1), sigmoid_of(types)

    @device_function
    def silu(a: Any) -> Any:
        s, _ = sigmoid(a)
        return a * s

    @device_function
    def silu_and_slope(a: Any) -> Any:
        s, rest = sigmoid(a)
        return a * s, s * (ONE + a * rest)

    return silu, silu_and_slope


def build(types: ElementwiseTypes, config: ElementwiseConfig, approximate: str | None) -> Callable[..., None]:
    """The kernel for these types and this config. approximate: of GELU; None for SwiGLU"""
    value, value_and_slope = _gate(types, approximate)

    @device_function
    def forward(a: Any, b: Any, _: Any, r: Any) -> Any:
        return value(a) * b

    @device_function
    def gradient(d: Any, a: Any, b: Any, r: Any) -> Any:
        g, slope = value_and_slope(a)
        return d * b * slope, d * g, g * b

    if len(types.inputs) == 2:
        return elementwise_kernel(types, config, forward)
    return elementwise_kernel(types, config, gradient, ("dA", "dB", "Y"))
