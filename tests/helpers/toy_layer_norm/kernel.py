"""X_grad = inv_std_dev * (D - mean of D - xh * mean of D * xh) of one row for each thread; D = Y_grad * scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function

__all__ = ["build"]


def build(threads: int) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument an int64."""
    load, store = i.loader("global", "float32", 1), i.storer("global", "float32", 1)

    @device_function
    def at(address: int, index: int) -> Any:
        one = cuda.local.array(1, float32)
        load(one, address + int64(index) * 4)
        return one[0]

    def kernel(Y_grad: int, X: int, scale: int, mean: int, inv_std: int, X_grad: int, rows: int, columns: int) -> None:
        row = int64(cuda.blockIdx.x) * threads + int64(cuda.threadIdx.x)
        one = cuda.local.array(1, float32)
        if row < rows:
            first, middle, inverse = row * columns, at(mean, row), at(inv_std, row)
            total = with_x = float32(0)
            for c in range(columns):
                d = at(Y_grad, first + c) * at(scale, c)
                total += d
                with_x += d * (at(X, first + c) - middle) * inverse
            for c in range(columns):
                d = at(Y_grad, first + c) * at(scale, c)
                xh = (at(X, first + c) - middle) * inverse
                one[0] = inverse * (d - total / float32(columns) - xh * with_x / float32(columns))
                store(X_grad + (first + c) * 4, one)

    return kernel
