"""Access to single numbers of an array in global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function

__all__ = ["number_access"]


def number_access(
    dtype: str, compute: str, native_bfloat16: bool = True
) -> tuple[Callable[[int, int], Any], Callable[[int, int, Any], None]]:
    """The device functions number(address, place) and put(address, place, value), of an array of this type. Values have
    the type of arithmetic `compute`.
    """
    ITEM, FLOAT = ITEMSIZE[dtype], float64 if compute == "float64" else float32
    load, store = i.loader("global", dtype, 1), i.storer("global", dtype, 1, native_bfloat16)

    @device_function
    def number(address: int, place: int) -> Any:
        one = cuda.local.array(1, FLOAT)
        load(one, address + int64(place) * ITEM)
        return one[0]

    @device_function
    def put(address: int, place: int, value: Any) -> None:
        one = cuda.local.array(1, FLOAT)
        one[0] = value
        store(address + int64(place) * ITEM, one)

    return number, put
