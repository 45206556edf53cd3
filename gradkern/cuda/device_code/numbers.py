"""Single numbers: access to those of an array in global memory, and inverse roots."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function


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


def integer_access(long: bool) -> tuple[Callable[[int, int], int], Callable[[int, int, int], None]]:
    """The device functions load(address, n) and store(address, n, value): the n-th of integers of 64 bits, or of 32."""
    LONG, BYTES = long, 8 if long else 4
    load_words, store_words = i.word_loader("global", BYTES), i.word_storer("global", BYTES)

    @device_function
    def load(address: int, n: int) -> int:
        words = cuda.local.array(2, int32)
        load_words(words, 0, address + int64(n) * BYTES)
        if LONG:
            return (int64(words[1]) << 32) | (int64(words[0]) & int64(0xFFFFFFFF))
        return int64(words[0])

    @device_function
    def store(address: int, n: int, value: int) -> None:
        words = cuda.local.array(2, int32)
        words[0] = int32(value & int64(0xFFFFFFFF))
        if LONG:
            words[1] = int32(value >> 32)
        store_words(address + int64(n) * BYTES, words)

    return load, store


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


def inverse_std(compute: str, epsilon: float | None) -> Callable[..., Any]:
    """The device function inverse(deviation): 1 / sqrt(deviation + epsilon), or `deviation` if epsilon is None."""
    VARIANCE, EPSILON = epsilon is not None, epsilon or 0.0
    FLOAT = float64 if compute == "float64" else float32
    root = inverse_root(compute)

    @device_function
    def inverse(deviation: Any) -> Any:
        return root(deviation + FLOAT(EPSILON)) if VARIANCE else deviation

    return inverse
