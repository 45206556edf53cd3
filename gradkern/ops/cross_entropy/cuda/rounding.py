"""A sum over parts, rounded once: the row block without a reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.rows.access import RowArithmetic
from gradkern.kernels.rows.config import RowsConfig
from gradkern.kernels.rows.kernel import rows_kernel
from gradkern.kernels.rows.problem import RowsTypes


@device_function
def _itself(y: Any, x: Any, p: Any, r: Any, totals: Any, column: int) -> None:
    y[0] = x[0]


def build(types: RowsTypes, config: RowsConfig) -> Callable[..., None]:
    """The kernel for these types and this config."""
    return rows_kernel(types, config, RowArithmetic((), _itself))
