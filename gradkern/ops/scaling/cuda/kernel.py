"""The kernels of products of arrays with numbers, and of a quotient's gradients: element by element, and sums along
what an array was broadcast over.
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
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes
from gradkern.kernels.elementwise.kernel import elementwise_kernel
from gradkern.ops.scaling.cuda.config import AXES, DivisionConfig


@device_function
def _sum_of_two(x0: Any, x1: Any, _: Any, r: Any) -> Any:
    return r[0] * x0 + r[1] * x1


@device_function
def _sum_of_three(x0: Any, x1: Any, x2: Any, r: Any) -> Any:
    return r[0] * x0 + r[1] * x1 + r[2] * x2


@device_function
def _product(x: Any, _1: Any, _2: Any, r: Any) -> Any:
    return r[0] * x


@device_function
def _products(x: Any, _1: Any, _2: Any, r: Any) -> Any:
    return r[0] * x, r[1] * x, r[2] * x


@device_function
def _quotient(x: Any, _1: Any, _2: Any, r: Any) -> Any:
    return x / r[0]


_SUMS = {2: _sum_of_two, 3: _sum_of_three}


def build(types: ElementwiseTypes, config: ElementwiseConfig, divides: bool, arrays: int = 1) -> Callable[..., None]:
    """The kernel of products for these types and this config."""
    if types.operator == "BatchScale":
        return elementwise_kernel(types, config, _products, ("output_0", "output_1", "output_2"))
    element = _SUMS.get(len(types.inputs), _quotient if divides else _product)
    return elementwise_kernel(types, config, element, arrays=arrays)


def build_quotient(types: ElementwiseTypes, config: ElementwiseConfig) -> Callable[..., None]:
    """The kernel of a quotient's gradients, of arrays of one shape."""

    @device_function
    def quotient(d: Any, a: Any, b: Any, r: Any) -> Any:
        q = d / b
        return q, -(q * (a / b))

    return elementwise_kernel(types, config, quotient, ("dA", "dB"))


def _place(taken: tuple[bool, ...]) -> Callable[..., Any]:
    """A device function of the number of an element along these axes, in C order: its distance in an array."""
    T0, T1, T2, T3 = taken
    FIRST = taken.index(True) if any(taken) else AXES

    @device_function
    def one(n: int, axis: int, size: int) -> Any:
        quotient = i.quotient(n, int32(size)) if axis > FIRST else int32(0)
        return quotient, int64(n - quotient * int32(size))

    @device_function
    def place(n: int, s1: int, s2: int, s3: int, t0: int, t1: int, t2: int, t3: int) -> Any:
        distance = int64(0)
        if T3:
            n, at = one(n, 3, s3)
            distance += at * t3
        if T2:
            n, at = one(n, 2, s2)
            distance += at * t2
        if T1:
            n, at = one(n, 1, s1)
            distance += at * t1
        if T0:
            distance += int64(n) * t0
        return distance

    return place


def _inverse(dtype: str) -> Callable[[Any], Any]:
    """A device function: two factors of 1 / b. A product with both is off by one unit in the last place more than a
    quotient, of some thirty instructions: two for each element take longer than the memory.

    The second factor is a power of two, so that the first is neither subnormal nor infinite where b is not.
    """
    FLOAT, POWER = (float, 512) if dtype == "float64" else (float32, 64)
    ONE, LARGE, SMALL = FLOAT(1), FLOAT(2.0**POWER), FLOAT(2.0**-POWER)

    @device_function
    def inverse(b: Any) -> Any:
        scale = LARGE if abs(b) < SMALL else SMALL if abs(b) > LARGE else ONE
        return ONE / (b * scale), scale

    return inverse


def _over_lanes(lanes: int, threads: int, sums: int) -> Callable[..., None]:
    """A device function of each thread's sums, its lane and what it is across: the first lane has those of all."""
    LANES, ACROSS, THREADS, SUMS, HELD = lanes, threads // lanes, threads, sums, threads * sums

    @device_function
    def over_lanes(totals: Any, lane: int, across: int) -> None:
        if LANES > 1:
            shared = cuda.shared.array(HELD, float64)
            for e in range(SUMS):
                shared[e * THREADS + lane * ACROSS + across] = totals[e]
            half = LANES // 2
            while half > 0:
                wait_for_block()
                if lane < half:
                    for e in range(SUMS):
                        totals[e] += shared[e * THREADS + (lane + half) * ACROSS + across]
                        shared[e * THREADS + lane * ACROSS + across] = totals[e]
                half //= 2

    return over_lanes


def build_parts(config: DivisionConfig) -> Callable[..., None]:
    """The kernel of X's gradient: float64 parts of its sums, for each block of `span` vectors that are added."""
    DTYPE, LANES, THREADS, WIDTH = config.dtype, config.lanes, config.threads, config.width
    OF_B, WRITES, SPREAD, DIRECT, BESIDE = (
        config.of_B,
        config.writes,
        config.spread,
        config.direct,
        config.axes[-1] == "k",
    )
    ACROSS, FLIGHT, SUMS = THREADS // LANES, config.in_flight, config.sums
    FLOAT = float64 if DTYPE == "float64" else float32
    ITEM, OTHER = ITEMSIZE[DTYPE], 1 if SPREAD else WIDTH
    WIDE, RESULT = (FLOAT, SUMS * ITEM) if DIRECT else (float64, SUMS * 8)
    WORDS, OTHER_WORDS = max(1, WIDTH * ITEM // 4), max(1, OTHER * ITEM // 4)
    HELD, OTHER_HELD = FLIGHT * WORDS, FLIGHT * OTHER_WORDS
    load, unpack = i.word_loader("global", WIDTH * ITEM), i.unpacker(DTYPE, WIDTH)
    load_other, unpack_other = i.word_loader("global", OTHER * ITEM), i.unpacker(DTYPE, OTHER)
    load_X, store = i.loader("global", DTYPE, SUMS), i.storer("global", DTYPE, WIDTH, config.native_bfloat16)
    store_sums = i.storer("global", DTYPE if DIRECT else "float64", SUMS, config.native_bfloat16)
    over_lanes, inverse = _over_lanes(LANES, THREADS, SUMS), _inverse(DTYPE)
    DIVISORS = SUMS if OF_B else OTHER
    kept, reduced_place = (_place(tuple(each == kind for each in config.axes)) for kind in "kr")

    def kernel(
        dY: int, X: int, other: int, result: int, written: int, count: int, reduced: int, span: int, tiles: int,
        s0: int, s1: int, s2: int, s3: int, y0: int, y1: int, y2: int, y3: int, x0: int, x1: int, x2: int, x3: int,
        o0: int, o1: int, o2: int, o3: int, w0: int, w1: int, w2: int, w3: int,
    ) -> None:  # fmt: skip
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        part = i.quotient(block, int32(tiles))
        if BESIDE:
            lane, across = thread // ACROSS, thread % ACROSS
        else:
            lane, across = thread % LANES, thread // LANES
        k = (block - part * int32(tiles)) * ACROSS + across
        words, other_words = cuda.local.array(HELD, int32), cuda.local.array(OTHER_HELD, int32)
        x, d, gradient = cuda.local.array(SUMS, FLOAT), cuda.local.array(WIDTH, FLOAT), cuda.local.array(WIDTH, FLOAT)
        o, totals = cuda.local.array(OTHER, FLOAT), cuda.local.array(SUMS, float64)
        inverted, scales = cuda.local.array(DIVISORS, FLOAT), cuda.local.array(DIVISORS, FLOAT)
        for e in range(SUMS):
            totals[e] = float64(0)
        if k < count:
            load_X(x, X + kept(k, s1, s2, s3, x0, x1, x2, x3))
            if OF_B:
                for e in range(SUMS):
                    inverted[e], scales[e] = inverse(x[e])
            to_y = dY + kept(k, s1, s2, s3, y0, y1, y2, y3)
            to_other = other + kept(k, s1, s2, s3, o0, o1, o2, o3)
            to_written = written + kept(k, s1, s2, s3, w0, w1, w2, w3)
            r, last = int64(part) * span + lane, min((int64(part) + 1) * span, reduced)
            while r < last:
                for j in range(FLIGHT):
                    n = int32(min(r + j * LANES, last - 1))
                    load(words, j * WORDS, to_y + reduced_place(n, s1, s2, s3, y0, y1, y2, y3))
                    load_other(other_words, j * OTHER_WORDS, to_other + reduced_place(n, s1, s2, s3, o0, o1, o2, o3))
                for j in range(FLIGHT):
                    if r + j * LANES < last:
                        unpack(d, words, j * WORDS)
                        unpack_other(o, other_words, j * OTHER_WORDS)
                        if not OF_B:
                            for e in range(OTHER):
                                inverted[e], scales[e] = inverse(o[e])
                        for e in range(WIDTH):
                            of_x, of_other = e if BESIDE else 0, 0 if SPREAD else e
                            a, b = (o[of_other], of_x) if OF_B else (x[of_x], of_other)
                            q = d[e] * inverted[b] * scales[b]
                            opposite = -(q * (a * inverted[b] * scales[b]))
                            gradient[e] = q if OF_B else opposite
                            totals[of_x] += opposite if OF_B else q
                        if WRITES:
                            n = int32(r + j * LANES)
                            store(to_written + reduced_place(n, s1, s2, s3, w0, w1, w2, w3), gradient)
                r += FLIGHT * LANES
        over_lanes(totals, lane, across)
        if lane == 0 and k < count:
            found = cuda.local.array(SUMS, WIDE)
            for e in range(SUMS):
                found[e] = WIDE(totals[e])
            store_sums(result + (int64(part) * count + k) * RESULT, found)

    return kernel


def build_sum(dtype: str, lanes: int, threads: int, native_bfloat16: bool) -> Callable[..., None]:
    """The kernel that adds up `number` parts of each of `count` results, `lanes` threads for each."""
    LANES, ACROSS = lanes, threads // lanes
    FLOAT, ITEM = float64 if dtype == "float64" else float32, ITEMSIZE[dtype]
    load, store = i.loader("global", "float64", 1), i.storer("global", dtype, 1, native_bfloat16)
    over_lanes = _over_lanes(lanes, threads, 1)

    def kernel(parts: int, result: int, count: int, number: int) -> None:
        thread = int32(cuda.threadIdx.x)
        lane, across = thread // ACROSS, thread % ACROSS
        k = int64(cuda.blockIdx.x) * ACROSS + across
        part, totals, one = cuda.local.array(1, float64), cuda.local.array(1, float64), cuda.local.array(1, FLOAT)
        totals[0] = float64(0)
        if k < count:
            for n in range(lane, number, LANES):
                load(part, parts + (n * count + k) * 8)
                totals[0] += part[0]
        over_lanes(totals, lane, across)
        if lane == 0 and k < count:
            one[0] = FLOAT(totals[0])
            store(result + k * ITEM, one)

    return kernel
