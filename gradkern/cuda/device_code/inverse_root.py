"""1 / sqrt(x), for kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32, float64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function

__all__ = ["inverse_root"]


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
