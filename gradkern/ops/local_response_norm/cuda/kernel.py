"""The two kernels of local response normalization's gradient, a thread to each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function

__all__ = ["ARGUMENTS", "build"]

ARGUMENTS = (
    "X", "D", "own", "others", "dX", "size", "w0", "w1", "w2", "inner", "before", "behind", "alpha", "beta", "bias"
)  # fmt: skip


def build(dtype: str, terms: bool, long: bool, native_bfloat16: bool) -> Callable[..., None]:
    """The kernel of terms: own = D s^-beta, others = D X s^(-beta - 1); or that of dX, where alpha is the factor of the
    sum. alpha, beta and bias are bits of the type of arithmetic. long: places need more than 31 bits.
    """
    compute = "float64" if dtype == "float64" else "float32"
    TERMS, ITEM, HELD = terms, ITEMSIZE[dtype], ITEMSIZE[compute]
    FLOAT = float64 if compute == "float64" else float32
    PLACE = int64 if long else int32
    load, load_held = i.loader("global", dtype, 1), i.loader("global", compute, 1)
    store, store_held = i.storer("global", dtype, 1, native_bfloat16), i.storer("global", compute, 1, native_bfloat16)
    value = i.float_of_bits(compute)

    @device_function
    def window_sum(
        array: int, outer: int, x0: int, x1: int, x2: int, w0: int, w1: int, w2: int, inner: int, n: int, before: int,
        behind: int,
    ) -> Any:  # fmt: skip
        total, one = FLOAT(0), cuda.local.array(1, FLOAT)
        for y0 in range(max(x0 - before, PLACE(0)), min(x0 + behind + PLACE(1), w0)):
            for y1 in range(max(x1 - before, PLACE(0)), min(x1 + behind + PLACE(1), w1)):
                line = PLACE((outer * w0 + y0) * w1 + y1) * w2
                for y2 in range(max(x2 - before, PLACE(0)), min(x2 + behind + PLACE(1), w2)):
                    at = int64(PLACE(line + y2) * inner + n)
                    if TERMS:
                        load(one, array + at * ITEM)
                        total += one[0] * one[0]
                    else:
                        load_held(one, array + at * HELD)
                        total += one[0]
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
            x, d = cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
            load(x, X + place * ITEM)
            total = window_sum(
                X if TERMS else others, outer, x0, x1, x2, a0, a1, a2, lanes, n, PLACE(before), PLACE(behind)
            )
            if TERMS:
                load(d, D + place * ITEM)
                s = value(bias) + value(alpha) * total
                d[0] = d[0] * s ** (-value(beta))
                store_held(own + place * HELD, d)
                d[0] = d[0] / s * x[0]
                store_held(others + place * HELD, d)
            else:
                load_held(d, own + place * HELD)
                d[0] = d[0] - value(alpha) * x[0] * total
                store(dX + place * ITEM, d)

    return local_response_norm
