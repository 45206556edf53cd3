"""The two kernels of local response normalization's gradient, a thread to each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.cuda.device_code.numbers import number_access


def build(dtype: str, terms: bool, long: bool, native_bfloat16: bool) -> Callable[..., None]:
    """The kernel of terms: own = D s^-beta, others = D X s^(-beta - 1); or that of dX, where alpha is the factor of the
    sum. alpha, beta and bias are bits of the type of arithmetic. long: places need more than 31 bits.
    """
    compute = "float64" if dtype == "float64" else "float32"
    TERMS = terms
    FLOAT = float64 if compute == "float64" else float32
    PLACE = int64 if long else int32
    number, put = number_access(dtype, compute, native_bfloat16)
    held, hold = number_access(compute, compute, native_bfloat16)
    value = i.float_of_bits(compute)

    @device_function
    def window_sum(
        array: int, outer: int, x0: int, x1: int, x2: int, w0: int, w1: int, w2: int, inner: int, n: int, before: int,
        behind: int,
    ) -> Any:  # fmt: skip
        total = FLOAT(0)
        for y0 in range(max(x0 - before, PLACE(0)), min(x0 + behind + PLACE(1), w0)):
            for y1 in range(max(x1 - before, PLACE(0)), min(x1 + behind + PLACE(1), w1)):
                line = PLACE((outer * w0 + y0) * w1 + y1) * w2
                for y2 in range(max(x2 - before, PLACE(0)), min(x2 + behind + PLACE(1), w2)):
                    at = int64(PLACE(line + y2) * inner + n)
                    if TERMS:
                        x = number(array, at)
                        total += x * x
                    else:
                        total += held(array, at)
        return total

    def local_response_norm(
        X: int, D: int, own: int, others: int, dX: int, size: int, w0: int, w1: int, w2: int, inner: int, before: int,
        behind: int, alpha: int, beta: int, bias: int,
    ) -> None:  # fmt: skip
        place = int64(cuda.blockIdx.x) * int32(cuda.blockDim.x) + int32(cuda.threadIdx.x)
        if place < size:
            a0, a1, a2, lanes = PLACE(w0), PLACE(w1), PLACE(w2), PLACE(inner)
            e = PLACE(place)
            rest = e // lanes
            n = PLACE(e - rest * lanes)
            line = rest // a2
            x2 = PLACE(rest - line * a2)
            plane = line // a1
            x1 = PLACE(line - plane * a1)
            outer = plane // a0
            x0 = PLACE(plane - outer * a0)
            x = number(X, place)
            total = window_sum(
                X if TERMS else others, outer, x0, x1, x2, a0, a1, a2, lanes, n, PLACE(before), PLACE(behind)
            )
            if TERMS:
                d = number(D, place)
                s = value(bias) + value(alpha) * total
                term = d * s ** (-value(beta))
                hold(own, place, term)
                hold(others, place, term / s * x)
            else:
                put(dX, place, held(own, place) - value(alpha) * x * total)

    return local_response_norm
