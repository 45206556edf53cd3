"""Toy operators on the row block, each no more than its arithmetic, as the docstring of gradkern.kernels tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import Reduction, RowArithmetic
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.inner_kernel import inner_kernel
from gradkern.kernels.rows.kernel import rows_kernel
from gradkern.kernels.rows.problem import RowsTypes

__all__ = ["CROSS_ENTROPY", "EPSILON", "RMS_NORM", "THREE_INPUTS", "build"]

EPSILON = 0.25


def build(arithmetic: RowArithmetic) -> Callable[[RowsTypes, RowsConfig], Callable[..., None]]:
    return lambda types, config: (inner_kernel if config.inner else rows_kernel)(types, config, arithmetic)


# --- RMS norm: parameters of columns, results of rows -----------------------------------------------------------------


@device_function
def square(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
    return x[0] * x[0], x[0]


@device_function
def inverse(totals: Any, r: Any, columns: Any) -> None:
    totals[0] = 1 / math.sqrt(totals[0] / columns + EPSILON)


@device_function
def scaled(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
    y[0] = x[0] * p[0] * totals[0]


RMS_NORM = RowArithmetic((Reduction(square),), scaled, inverse)

# --- cross entropy: two reductions, of which the second knows the first, and numbers of rows --------------------------


@device_function
def itself(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
    return x[0], x[0]


@device_function
def maximum(first: Any, second: Any, more: Any, other: Any) -> Any:
    return max(first, more), second


@device_function
def exponential(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
    return math.exp(x[0] - totals[0]), x[0]


@device_function
def logarithm_of_sum(totals: Any, r: Any, columns: Any) -> None:
    totals[1] = totals[0] + math.log(totals[2])


@device_function
def less_one_at_the_label(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
    share = math.exp(x[0] - totals[1])
    y[0] = (share - (1 if column == r[0] else 0)) * r[1]
    y[1] = share


CROSS_ENTROPY = RowArithmetic(
    (Reduction(itself, maximum, (-math.inf, 0.0)), Reduction(exponential)), less_one_at_the_label, logarithm_of_sum
)

# --- three inputs of two types, and pairs of sums ---------------------------------------------------------------------


@device_function
def product_and_other(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
    return x[0] * x[1], x[2]


@device_function
def all_of_them(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
    y[0] = x[0] - totals[0] + p[0] * totals[1] + p[1] * x[1] + p[2] * x[2]


THREE_INPUTS = RowArithmetic((Reduction(product_and_other),), all_of_them)
