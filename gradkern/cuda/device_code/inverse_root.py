"""1 / sqrt(x) and a channel's inverse standard deviation, for kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32, float64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function


def inverse_root(compute: str) -> Callable[[Any], Any]:
    """The device function inverse_root(x), of x in the type `compute`: infinity for 0, and 0 for infinity."""
    DOUBLE = compute == "float64"

    @device_function
    def inverse_root(value: Any) -> Any:
        if DOUBLE:
            return float64(1) / float64(math.sqrt(value))
        guess = i.inverse_root_approximate(value)  # then one Newton step: it leaves 0 and infinity unchanged
        better = guess * (float32(1.5) - float32(0.5) * value * guess * guess)
        return better if better == better else guess

    return inverse_root


def inverse_std(compute: str, epsilon: float | None) -> Callable[..., Any]:
    """The device function inverse(deviation): 1 / sqrt(deviation + epsilon), or `deviation` if epsilon is None."""
    VARIANCE, EPSILON = epsilon is not None, epsilon or 0.0
    FLOAT = float64 if compute == "float64" else float32
    root = inverse_root(compute)

    @device_function
    def inverse(deviation: Any) -> Any:
        return root(deviation + FLOAT(EPSILON)) if VARIANCE else deviation

    return inverse
