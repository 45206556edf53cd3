"""The kernel of arrays that are computed element by element, for a config and an operator's arithmetic.

A thread loads all its vectors of all inputs before it uses the first; a block's vectors are side by side. The last
block also computes the elements behind the last whole vector, one a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes

__all__ = ["ARGUMENTS", "elementwise_kernel"]

ARGUMENTS = ("input_0", "input_1", "input_2", "output", "size")


def elementwise_kernel(
    types: ElementwiseTypes, config: ElementwiseConfig, element: Callable[[Any, Any, Any], Any]
) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (ARGUMENTS) an int64. element(x0, x1, x2), a
    device function, is the output's element; x of inputs that are not there repeat the last.
    """
    WIDTH, VECTORS, THREADS, INPUTS = config.width, config.vectors, config.threads, len(types.inputs)
    FLOAT = float64 if types.compute == "float64" else float32
    kinds = (*types.inputs, *types.inputs[-1:] * 2)[:3]
    V0, V1, V2 = BYTES = [WIDTH * ITEMSIZE[each] for each in kinds]
    I0, I1, I2, OUT = (ITEMSIZE[each] for each in (*kinds, types.output))
    WORDS_0, WORDS_1 = (max(1, each // 4) for each in BYTES[:2])
    WORDS = sum(max(1, each // 4) for each in BYTES[:INPUTS])
    HELD = VECTORS * WORDS
    load_0, load_1, load_2 = (i.word_loader("global", each) for each in BYTES)
    unpack_0, unpack_1, unpack_2 = (i.unpacker(each, WIDTH) for each in kinds)
    one_0, one_1, one_2 = (i.loader("global", each, 1) for each in kinds)
    store = i.storer("global", types.output, WIDTH, types.native_bfloat16)
    store_one = i.storer("global", types.output, 1, types.native_bfloat16)

    @device_function
    def element_at(y: Any, e: int, x0: Any, x1: Any, x2: Any) -> None:
        if INPUTS == 1:
            y[e] = element(x0[e], x0[e], x0[e])
        elif INPUTS == 2:
            y[e] = element(x0[e], x1[e], x1[e])
        else:
            y[e] = element(x0[e], x1[e], x2[e])

    def kernel(a0: int, a1: int, a2: int, out: int, size: int) -> None:
        thread, block = int32(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        whole = size // WIDTH
        first = block * (VECTORS * THREADS) + thread
        words = cuda.local.array(HELD, int32)
        x0, x1, x2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        y = cuda.local.array(WIDTH, FLOAT)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < whole:
                load_0(words, j * WORDS, a0 + v * V0)
                if INPUTS > 1:
                    load_1(words, j * WORDS + WORDS_0, a1 + v * V1)
                if INPUTS > 2:
                    load_2(words, j * WORDS + WORDS_0 + WORDS_1, a2 + v * V2)
        for j in range(VECTORS):
            v = first + j * THREADS
            if v < whole:
                unpack_0(x0, words, j * WORDS)
                if INPUTS > 1:
                    unpack_1(x1, words, j * WORDS + WORDS_0)
                if INPUTS > 2:
                    unpack_2(x2, words, j * WORDS + WORDS_0 + WORDS_1)
                for e in range(WIDTH):
                    element_at(y, e, x0, x1, x2)
                store(out + v * (WIDTH * OUT), y)
        if WIDTH > 1:
            n = whole * WIDTH + thread
            if block == cuda.gridDim.x - 1 and n < size:
                one_0(x0, a0 + n * I0)
                if INPUTS > 1:
                    one_1(x1, a1 + n * I1)
                if INPUTS > 2:
                    one_2(x2, a2 + n * I2)
                element_at(y, 0, x0, x1, x2)
                store_one(out + n * OUT, y)

    return kernel
