"""The kernels of finite elements and of the norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32

from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes, TotalsConfig
from gradkern.kernels.elementwise.kernel import elementwise_kernel
from gradkern.kernels.elementwise.totals import parts_kernel, sum_kernel


def build(types: ElementwiseTypes, config: ElementwiseConfig) -> Callable[..., None]:
    """The kernel of IsFinite."""
    FLOAT = float if types.compute == "float64" else float32
    INFINITY, ONE, ZERO = FLOAT(math.inf), FLOAT(1), FLOAT(0)

    @device_function
    def is_finite(x: Any, _1: Any, _2: Any, r: Any) -> Any:
        return ONE if abs(x) < INFINITY else ZERO

    return elementwise_kernel(types, config, is_finite)


@device_function
def _square(x: Any) -> Any:
    return x * x


@device_function
def _not_finite(x: Any) -> Any:
    return x - x + 0 * x  # 0, or NaN


@device_function
def _root(total: Any) -> Any:
    return math.sqrt(total)


@device_function
def _none(total: Any) -> Any:
    return 1.0 if total == 0.0 else 0.0


def build_parts(config: TotalsConfig, arrays: int, squares: bool) -> Callable[..., None]:
    """The kernel of the parts of a sum: of squares, or 0 where all elements are finite."""
    return parts_kernel(config, arrays, _square if squares else _not_finite)


def build_sum(threads: int, output: str, squares: bool, native_bfloat16: bool) -> Callable[..., None]:
    """The kernel of their sum."""
    return sum_kernel(threads, output, _root if squares else _none, native_bfloat16)
