"""The kernels of a number that all elements of arrays add to: parts of the sum, one a block, and their sum.

A block's threads add what is theirs in an order that the sizes determine: the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import TotalsConfig
from gradkern.kernels.elementwise.kernel import array_of_block


def _over_block(threads: int) -> Callable[[Any], Any]:
    """A device function of a thread's number: the sum over the block."""
    WARPS = threads // 32

    @device_function
    def over_block(value: Any) -> Any:
        shared = cuda.shared.array(WARPS, float64)
        thread = int32(cuda.threadIdx.x)
        for power in range(5):
            value += i.shuffle_xor_double(value, int32(1 << power))
        if thread % 32 == 0:
            shared[thread // 32] = value
        wait_for_block()
        total = float64(0)
        for warp in range(WARPS):
            total += shared[warp]
        return total

    return over_block


def parts_kernel(config: TotalsConfig, arrays: int, term: Callable[[Any], Any]) -> Callable[..., None]:
    """The kernel of each block's part, a float64, over that many arrays, each with blocks of its own. term(x), a
    device function, is what an element adds. The terms of a vector are added in the type of arithmetic; where that sum
    is not a number of good size, again in float64.
    """
    WIDTH, VECTORS, THREADS, DTYPE = config.width, config.vectors, config.threads, config.input
    FLOAT, BYTES = float64 if DTYPE == "float64" else float32, config.width * ITEMSIZE[config.input]
    WORDS, ITEM = max(1, BYTES // 4), ITEMSIZE[DTYPE]
    HELD, DOUBLE = VECTORS * WORDS, DTYPE == "float64"
    LEAST, MOST = (0.0, 0.0) if DOUBLE else (float32(1e-30), float32(1e38))
    load, unpack, one = i.word_loader("global", BYTES), i.unpacker(DTYPE, WIDTH), i.loader("global", DTYPE, 1)
    store, over_block = i.storer("global", "float64", 1), _over_block(THREADS)

    @device_function
    def of_vector(x: Any, count: int) -> Any:
        total = FLOAT(0)
        for e in range(WIDTH):
            if e < count:
                total += term(x[e])
        exact = float64(total)
        if not DOUBLE and not (LEAST < total < MOST):
            exact = float64(0)
            for e in range(WIDTH):
                if e < count:
                    exact += term(float64(x[e]))
        return exact

    find, ALONE = array_of_block(arrays), arrays == 1

    def kernel(parts: int, *of_arrays: int) -> None:
        thread, number = int32(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        a, _, size, begin, end = find(number, of_arrays)
        block = number - begin
        blocks = int64(cuda.gridDim.x) if ALONE else end - begin
        whole = size // WIDTH
        words, x, result = cuda.local.array(HELD, int32), cuda.local.array(WIDTH, FLOAT), cuda.local.array(1, float64)
        total = float64(0)
        first = block * (VECTORS * THREADS) + thread
        while first < whole:
            for j in range(VECTORS):
                v = first + j * THREADS
                if v < whole:
                    load(words, j * WORDS, a + v * BYTES)
            for j in range(VECTORS):
                if first + j * THREADS < whole:
                    unpack(x, words, j * WORDS)
                    total += of_vector(x, WIDTH)
            first += blocks * (VECTORS * THREADS)
        n = whole * WIDTH + thread
        if block == 0 and n < size:
            one(x, a + n * ITEM)
            total += of_vector(x, 1)
        result[0] = over_block(total)
        if thread == 0:
            store(parts + number * 8, result)

    return kernel


def sum_kernel(threads: int, output: str, finish: Callable[[Any], Any], native_bfloat16: bool) -> Callable[..., None]:
    """The kernel of a single block: finish(sum of the parts), a device function of a float64, as an `output`."""
    THREADS, OUTPUT = threads, float64 if output == "float64" else float32
    load, over_block = i.loader("global", "float64", 1), _over_block(threads)
    store = i.storer("global", output, 1, native_bfloat16)

    def kernel(parts: int, out: int, count: int) -> None:
        thread = int32(cuda.threadIdx.x)
        part, result = cuda.local.array(1, float64), cuda.local.array(1, OUTPUT)
        total = float64(0)
        n = int64(thread)
        while n < count:
            load(part, parts + n * 8)
            total += part[0]
            n += THREADS
        result[0] = OUTPUT(finish(over_block(total)))
        if thread == 0:
            store(out, result)

    return kernel
