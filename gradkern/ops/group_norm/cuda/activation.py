"""A group norm's activations, for kernels: batch norm's, and GELU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.channels.activation import activation_of, derivative_of
from gradkern.ops.bias_gelu.cuda.gelu_derivative import gelu_of, slope_of

__all__ = ["activations"]


def activations(name: str, compute: str, data: str, native_bfloat16: bool) -> tuple[Callable[..., Any], ...]:
    """The device functions activate(t) and times_derivative(d, t), accurate for results of type `data`."""
    if name != "gelu":
        return activation_of(name, compute), derivative_of(name, compute)
    slope = slope_of(False, compute, data, native_bfloat16)

    @device_function
    def times_slope(d: Any, t: Any) -> Any:
        return d * slope(t)

    return gelu_of(False, compute, data, native_bfloat16), times_slope
