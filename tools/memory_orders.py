"""Orders of memory in which tests and benchmarks have arrays: C order, and channels last."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from gradkern.strides import c_strides, channels_last_strides

__all__ = ["ORDERS", "in_order", "strides_in_order"]

ORDERS = ("C", "channels_last")


def in_order(array: Any, order: str) -> Any:
    """The same elements, NumPy's or PyTorch's; "channels_last" has axis 1, the C of N C H W, innermost in memory."""
    if order == "C" or array.ndim < 3:
        return array
    if isinstance(array, np.ndarray):
        last: Any = np.moveaxis(cast(Any, array), 1, -1)
        return np.moveaxis(np.ascontiguousarray(last), -1, 1)
    return array.movedim(1, -1).contiguous().movedim(-1, 1)  # PyTorch's


def strides_in_order(shape: tuple[int, ...], itemsize: int, order: str) -> tuple[int, ...]:
    """The strides, in bytes, that `in_order` gives an array of this shape."""
    return (c_strides if order == "C" or len(shape) < 3 else channels_last_strides)(shape, itemsize)
