"""A channel's inverse standard deviation, from a variance or an inverse standard deviation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.cuda import float32, float64

from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.inverse_root import inverse_root

__all__ = ["inverse_std"]


def inverse_std(compute: str, epsilon: float | None) -> Callable[..., Any]:
    """The device function inverse(deviation): 1 / sqrt(deviation + epsilon), or `deviation` if epsilon is None."""
    VARIANCE, EPSILON = epsilon is not None, epsilon or 0.0
    FLOAT = float64 if compute == "float64" else float32
    root = inverse_root(compute)

    @device_function
    def inverse(deviation: Any) -> Any:
        if VARIANCE:
            return root(deviation + FLOAT(EPSILON))
        return deviation

    return inverse
