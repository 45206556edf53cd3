"""The kernel of rotary embeddings: a thread turns a vector of pairs, or several side by side with its neighbours'.

All its vectors are loaded before the first is stored, so Y may be X.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.numbers import integer_access
from gradkern.ops.rotary_embedding.cuda.config import RotaryConfig


def build(config: RotaryConfig) -> Callable[..., None]:
    """The kernel, as a function that Numba compiles with every argument (ARGUMENTS) an int64."""
    WIDTH, LANES, ROWS, HALF, REST = config.width, config.lanes, config.rows, config.half, config.rest
    FLOAT = float64 if config.data == "float64" else float32
    SIGN = (float if config.data == "float64" else float32)(-1 if config.backward else 1)
    ITEM, CACHED = ITEMSIZE[config.data], ITEMSIZE[config.cache]
    INTERLEAVED, INDEXED = config.interleaved, config.indexed
    BOTH = 2 * WIDTH
    load, load_both = (i.loader("global", config.data, each) for each in (WIDTH, BOTH))
    store, store_both = (i.storer("global", config.data, each, config.native_bfloat16) for each in (WIDTH, BOTH))
    load_angles = i.loader("global", config.cache, WIDTH)
    load_position, _ = integer_access(True)

    def kernel(
        X: int, cos: int, sin: int, positions: int, Y: int, rows: int, inner: int, middle: int, last: int, x_0: int,
        x_1: int, x_2: int, y_0: int, y_1: int, y_2: int, cos_0: int, cos_1: int, cos_2: int, sin_0: int,
        sin_1: int, sin_2: int, place_0: int, place_1: int, place_2: int,
    ) -> None:  # fmt: skip
        """inner, middle: sizes of the fastest row axis and of the next; last: the last position of the cache."""
        thread = int32(cuda.threadIdx.x)
        lane, row = thread % LANES, int64(cuda.blockIdx.x) * ROWS + thread // LANES
        if thread >= ROWS * LANES or row >= rows:
            return
        n = int32(row)
        n2, n = n % int32(inner), n // int32(inner)
        n1, n0 = n % int32(middle), n // int32(middle)
        x, y = X + n0 * x_0 + n1 * x_1 + n2 * x_2, Y + n0 * y_0 + n1 * y_1 + n2 * y_2
        if INDEXED:  # the cache has one axis of lines: cos_0, sin_0
            place = load_position(positions + n0 * place_0 + n1 * place_1 + n2 * place_2, 0)
            place = min(max(place, int64(0)), last)
            c_line, s_line = cos + place * cos_0, sin + place * sin_0
        else:
            c_line, s_line = cos + n0 * cos_0 + n1 * cos_1 + n2 * cos_2, sin + n0 * sin_0 + n1 * sin_1 + n2 * sin_2
        x1, x2 = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        c, s = cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        both = cuda.local.array(BOTH, FLOAT)
        for first in range(lane * WIDTH, HALF, LANES * WIDTH):
            if INTERLEAVED:
                load_both(both, x + 2 * first * ITEM)
                for e in range(WIDTH):
                    x1[e], x2[e] = both[2 * e], both[2 * e + 1]
            else:
                load(x1, x + first * ITEM)
                load(x2, x + (HALF + first) * ITEM)
            load_angles(c, c_line + first * CACHED)
            load_angles(s, s_line + first * CACHED)
            for e in range(WIDTH):
                turned = SIGN * s[e]
                x1[e], x2[e] = x1[e] * c[e] - x2[e] * turned, x2[e] * c[e] + x1[e] * turned
            if INTERLEAVED:
                for e in range(WIDTH):
                    both[2 * e], both[2 * e + 1] = x1[e], x2[e]
                store_both(y + 2 * first * ITEM, both)
            else:
                store(y + first * ITEM, x1)
                store(y + (HALF + first) * ITEM, x2)
        for first in range(2 * HALF + lane * WIDTH, 2 * HALF + REST, LANES * WIDTH):
            load(x1, x + first * ITEM)
            store(y + first * ITEM, x1)

    return kernel
