"""The kernel that adds to each element of an array its channel's number, in place: Y[n] += B[n // inner % channels]."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE


def build(
    dtype: str, width: int, vectors: int, uniform: bool, long: bool, native_bfloat16: bool
) -> Callable[..., None]:
    """The kernel (Y, B, size, inner, channels) for a thread's vectors of `width` elements, in any number of blocks.

    uniform: all elements of a vector are of one channel. long: places need more than 31 bits.
    """
    WIDTH, VECTORS, UNIFORM, ITEM = width, vectors, uniform, ITEMSIZE[dtype]
    FLOAT = float64 if dtype == "float64" else float32
    PLACE = int64 if long else int32
    load, load_one = (i.loader("global", dtype, count) for count in (width, 1))
    store, store_one = (i.storer("global", dtype, count, native_bfloat16) for count in (width, 1))

    def add_bias(Y: int, B: int, size: int, inner: int, channels: int) -> None:
        values, one, bias = cuda.local.array(WIDTH, FLOAT), cuda.local.array(1, FLOAT), cuda.local.array(1, FLOAT)
        threads = int32(cuda.blockDim.x)
        first = PLACE(int64(cuda.blockIdx.x) * (VECTORS * threads) + int32(cuda.threadIdx.x))
        for j in range(VECTORS):
            n = PLACE((first + j * threads) * WIDTH)
            if n + WIDTH <= size:
                load(values, Y + int64(n) * ITEM)
                for e in range(WIDTH):
                    if e == 0 or not UNIFORM:
                        load_one(bias, B + int64(PLACE(n + e) // PLACE(inner) % PLACE(channels)) * ITEM)
                    values[e] += bias[0]
                store(Y + int64(n) * ITEM, values)
            else:
                while n < size:  # of the last vector, not a whole one
                    load_one(bias, B + int64(n // PLACE(inner) % PLACE(channels)) * ITEM)
                    load_one(one, Y + int64(n) * ITEM)
                    one[0] += bias[0]
                    store_one(Y + int64(n) * ITEM, one)
                    n += PLACE(1)

    return add_bias
