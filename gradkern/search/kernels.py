"""Two kernels on memory end to end: random data for candidates, and how far one result is from another.

Every kernel argument is an int64; addresses are those of elements of the type the kernel was built for.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.search.kernel_sizes import MEASURES, THREADS


def fill(dtype: str) -> Callable[..., None]:
    """The kernel (address, count, seed): element i becomes a number in [-1, 1) that depends on i and the seed alone."""
    store = intrinsics.storer("global", dtype, 1, False)
    WORK = float64 if dtype == "float64" else float32
    SIZE = np.dtype(dtype).itemsize
    WORD = 0xFFFFFFFF

    def kernel(address: int, count: int, seed: int) -> None:
        value = cuda.local.array(1, WORK)
        step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
        i = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        while i < count:
            x = ((i ^ (i >> 32)) * 0x9E3779B1 + seed) & WORD  # T. Mueller's hash of 32 bits, in an int64
            x = ((x ^ (x >> 16)) * 0x45D9F3B) & WORD
            x = ((x ^ (x >> 16)) * 0x45D9F3B) & WORD
            x = x ^ (x >> 16)
            value[0] = WORK(x) * WORK(2.0**-31) - WORK(1)
            store(address + i * SIZE, value)
            i += step

    return kernel


def compare(dtype: str) -> Callable[..., None]:
    """The kernel (a, b, count, result): block g writes four float64 at result + 32*g, of its share of the elements:

    sum of (a - b)^2, sum of b^2, how many of a are numbers, and the largest |a - b| - epsilon * max(|a|, |b|): 0 if
    the two are at most one step of the type apart. What is NaN in a does not enter the others.
    """
    load = intrinsics.loader("global", dtype, 1)
    store = intrinsics.storer("global", "float64", MEASURES)
    WORK = float64 if dtype == "float64" else float32
    SIZE = np.dtype(dtype).itemsize
    STEP = float(ml_dtypes.finfo(np.dtype(dtype)).eps)
    ALL = THREADS * MEASURES

    def kernel(a: int, b: int, count: int, result: int) -> None:
        left, right = cuda.local.array(1, WORK), cuda.local.array(1, WORK)
        measures = cuda.local.array(MEASURES, float64)
        shared = cuda.shared.array(ALL, float64)
        apart = squares = numbers = worst = float64(0)
        step = int64(cuda.gridDim.x) * int64(cuda.blockDim.x)
        i = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
        while i < count:
            load(left, a + i * SIZE)
            load(right, b + i * SIZE)
            p, q = float64(left[0]), float64(right[0])
            if p == p:
                apart += (p - q) * (p - q)
                squares += q * q
                numbers += 1
                worst = max(worst, abs(p - q) - STEP * max(abs(p), abs(q)))
            i += step

        thread = cuda.threadIdx.x
        shared[thread] = apart
        shared[thread + THREADS] = squares
        shared[thread + 2 * THREADS] = numbers
        shared[thread + 3 * THREADS] = worst
        half = THREADS // 2
        while half > 0:
            wait_for_block()
            if thread < half:
                for m in range(3):
                    shared[thread + m * THREADS] += shared[thread + half + m * THREADS]
                shared[thread + 3 * THREADS] = max(shared[thread + 3 * THREADS], shared[thread + half + 3 * THREADS])
            half //= 2
        if thread == 0:
            for m in range(MEASURES):
                measures[m] = shared[m * THREADS]
            store(result + int64(cuda.blockIdx.x) * (8 * MEASURES), measures)

    return kernel
