"""The kernels of the gradients of softmax and of its logarithm.

softmax      dX = Y (dY - sum dY Y); with dropout, dY are what its mask has kept, times its factor
log softmax  dX = dY - exp(X) sum dY
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import Reduction, RowArithmetic
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.inner_kernel import inner_kernel
from gradkern.kernels.rows.kernel import rows_kernel
from gradkern.kernels.rows.problem import RowsTypes


@device_function
def _softmax_terms(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
    return x[0] * x[1], x[0]


@device_function
def _softmax(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
    y[0] = x[1] * (x[0] - totals[0])


def _masked_softmax(types: RowsTypes) -> RowArithmetic:
    """Of what a mask has kept of dY, times the only number."""
    FLOAT, number = float if types.compute == "float64" else float32, i.float_of_bits(types.compute)
    ZERO = FLOAT(0)

    @device_function
    def scalars(r: Any, factor: int, _1: int, _2: int, _3: int, _4: int, row: int, columns: int) -> None:
        r[0] = number(factor)

    @device_function
    def terms(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
        D = x[0] * r[0] if x[1] > ZERO else ZERO
        return D * x[2], D

    @device_function
    def gradient(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
        D = x[0] * r[0] if x[1] > ZERO else ZERO
        y[0] = x[2] * (D - totals[0])

    return RowArithmetic((Reduction(terms),), gradient, scalars=scalars, values=1)


@device_function
def _log_softmax_terms(x: Any, p: Any, r: Any, totals: Any, column: int) -> Any:
    return x[0], x[0]


def _log_softmax(result: str) -> Callable[..., None]:
    """exp is the device's own where 16 bits are stored: off by 2^-22 and an eighth of that for each unit of X."""
    APPROXIMATE, LOG2_E = result in ("float16", "bfloat16"), float32(1 / math.log(2))

    @device_function
    def log_softmax(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
        share = i.exp2_approximate(x[1] * LOG2_E) if APPROXIMATE else math.exp(x[1])
        y[0] = x[0] - share * totals[0]

    return log_softmax


def build(types: RowsTypes, config: RowsConfig) -> Callable[..., None]:
    """The kernel for these types and this config."""
    if types.operator.startswith("Log"):
        arithmetic = RowArithmetic((Reduction(_log_softmax_terms),), _log_softmax(types.outputs[0]))
    elif len(types.inputs) == 3:
        arithmetic = _masked_softmax(types)
    else:
        arithmetic = RowArithmetic((Reduction(_softmax_terms),), _softmax)
    return (inner_kernel if config.inner else rows_kernel)(types, config, arithmetic)
