"""A channel's inverse standard deviation, from what a batch norm is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32, float64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function

__all__ = ["inverse_std"]


def inverse_std(compute: str, epsilon: float | None) -> Callable[..., Any]:
    """The device function inverse(deviation): 1 / sqrt(deviation + epsilon); deviation itself where epsilon is None."""
    VARIANCE, EPSILON, DOUBLE = epsilon is not None, epsilon or 0.0, compute == "float64"
    FLOAT = float64 if DOUBLE else float32

    @device_function
    def inverse_root(value: Any) -> Any:
        if DOUBLE:
            return FLOAT(1) / FLOAT(math.sqrt(value))
        guess = i.inverse_root_approximate(value)  # and one step of Newton's, which is nothing for 0 and infinity
        better = guess * (FLOAT(1.5) - FLOAT(0.5) * value * guess * guess)
        return better if better == better else guess

    @device_function
    def inverse(deviation: Any) -> Any:
        if VARIANCE:
            return inverse_root(deviation + FLOAT(EPSILON))
        return deviation

    return inverse
