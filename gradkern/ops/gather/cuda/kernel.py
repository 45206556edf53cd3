"""The keys of a gather's gradient on a GPU: the number of the row that each element is added to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.cuda import int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import integer_access
from gradkern.kernels.segments.config import KeyTypes, SortConfig
from gradkern.kernels.segments.sort import count_kernel


def build(config: SortConfig, types: KeyTypes) -> Callable[..., None]:
    """The kernel that makes the keys and counts them, for these types and this config."""
    DIMENSIONS, EACH = types.dimensions, types.each
    load, _ = integer_access(types.indices == "int64")

    @device_function
    def key(indices: int, n: int, rows: int, dropped: int, sizes: Any, strides: Any, bounds: Any, steps: Any) -> int:
        place, rest, inside = int64(0), int32(n), True
        for back in range(DIMENSIONS):
            d = DIMENSIONS - 1 - back
            quotient = i.quotient(rest, int32(sizes[d]))
            place += int64(rest - quotient * int32(sizes[d])) * strides[d]
            rest = quotient
        for q in range(EACH):
            index = int64(load(indices, int64(n) * EACH + q))
            if index < 0:
                index += bounds[q]
            inside = inside and index >= 0 and index < bounds[q]
            place += index * steps[q]
        if not inside or place == dropped:
            place = int64(rows)
        return place

    return count_kernel(config, types.long, key)
