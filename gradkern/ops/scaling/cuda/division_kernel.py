"""The kernels of a quotient's gradients: element by element, and sums along what an array was broadcast over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes
from gradkern.kernels.elementwise.kernel import elementwise_kernel

__all__ = ["ARGUMENTS", "AXES", "SUM_ARGUMENTS", "DivisionConfig", "build", "build_parts", "build_sum"]

AXES = 4
ARGUMENTS = (  # strides are in bytes
    *("dY", "A", "B", "result", "count", "reduced", "span", "tiles"),
    *(f"{kind}_{n}" for kind in ("size", "dY_stride", "A_stride", "B_stride") for n in range(AXES)),
)
SUM_ARGUMENTS = ("parts", "result", "count", "number")


@dataclass(frozen=True, slots=True)
class DivisionConfig:
    """of_B: the gradient of B, else of A; kept: whether the result has each axis; lanes: threads of a block along what
    is added up, the others have a result each; direct: a block's sum is the result, of type `dtype`; in_flight:
    elements that a thread has loaded before it uses the first.
    """

    dtype: str
    of_B: bool
    kept: tuple[bool, ...]
    lanes: int
    direct: bool
    native_bfloat16: bool
    threads: int = 256
    in_flight: int = 4

    @property
    def name(self) -> str:
        kept = "".join("k" if each else "r" for each in self.kept)
        return f"sums_{kept}_{self.threads // self.lanes}x{self.lanes}"


def build(types: ElementwiseTypes, config: ElementwiseConfig) -> Callable[..., None]:
    """The kernel of arrays of one shape."""

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


def build_parts(config: DivisionConfig) -> Callable[..., None]:
    """The kernel of the results' parts: float64 for each block of `span` elements along what is added up."""
    DTYPE, LANES, ACROSS, OF_B, DIRECT = (
        config.dtype,
        config.lanes,
        config.threads // config.lanes,
        config.of_B,
        config.direct,
    )
    THREADS, BESIDE, FLIGHT = config.threads, config.kept[-1], config.in_flight
    FLOAT = float64 if DTYPE == "float64" else float32
    WIDE, ITEM = (FLOAT, ITEMSIZE[DTYPE]) if DIRECT else (float64, 8)
    load = i.loader("global", DTYPE, 1)
    store = i.storer("global", DTYPE if DIRECT else "float64", 1, config.native_bfloat16)
    kept, reduced_place = _place(config.kept), _place(tuple(not each for each in config.kept))

    def kernel(
        dY: int, A: int, B: int, result: int, count: int, reduced: int, span: int, tiles: int,
        s0: int, s1: int, s2: int, s3: int, y0: int, y1: int, y2: int, y3: int,
        a0: int, a1: int, a2: int, a3: int, b0: int, b1: int, b2: int, b3: int,
    ) -> None:  # fmt: skip
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        part = i.quotient(block, int32(tiles))
        if BESIDE:
            lane, across = thread // ACROSS, thread % ACROSS
        else:
            lane, across = thread % LANES, thread // LANES
        k = (block - part * int32(tiles)) * ACROSS + across
        one = cuda.local.array(1, FLOAT)
        d, a, b = cuda.local.array(FLIGHT, FLOAT), cuda.local.array(FLIGHT, FLOAT), cuda.local.array(FLIGHT, FLOAT)
        total = float64(0)
        if k < count:
            to_y = dY + kept(k, s1, s2, s3, y0, y1, y2, y3)
            to_a = A + kept(k, s1, s2, s3, a0, a1, a2, a3)
            to_b = B + kept(k, s1, s2, s3, b0, b1, b2, b3)
            r, last = int64(part) * span + lane, min((int64(part) + 1) * span, reduced)
            while r < last:
                for j in range(FLIGHT):
                    n = int32(min(r + j * LANES, last - 1))
                    load(one, to_y + reduced_place(n, s1, s2, s3, y0, y1, y2, y3))
                    d[j] = one[0]
                    load(one, to_b + reduced_place(n, s1, s2, s3, b0, b1, b2, b3))
                    b[j] = one[0]
                    if OF_B:
                        load(one, to_a + reduced_place(n, s1, s2, s3, a0, a1, a2, a3))
                        a[j] = one[0]
                for j in range(FLIGHT):
                    if r + j * LANES < last:
                        value = d[j] / b[j]
                        if OF_B:
                            value = -(value * (a[j] / b[j]))
                        total += value
                r += FLIGHT * LANES
        if LANES > 1:
            shared = cuda.shared.array(THREADS, float64)
            shared[lane * ACROSS + across] = total
            half = LANES // 2
            while half > 0:
                wait_for_block()
                if lane < half:
                    shared[lane * ACROSS + across] += shared[(lane + half) * ACROSS + across]
                half //= 2
            total = shared[across]
        if lane == 0 and k < count:
            found = cuda.local.array(1, WIDE)
            found[0] = WIDE(total)
            store(result + (int64(part) * count + k) * ITEM, found)

    return kernel


def build_sum(dtype: str, threads: int, native_bfloat16: bool) -> Callable[..., None]:
    """The kernel that adds up `number` parts of each of `count` results."""
    THREADS, FLOAT, ITEM = threads, float64 if dtype == "float64" else float32, ITEMSIZE[dtype]
    load, store = i.loader("global", "float64", 1), i.storer("global", dtype, 1, native_bfloat16)

    def kernel(parts: int, result: int, count: int, number: int) -> None:
        k = int64(cuda.blockIdx.x) * THREADS + int32(cuda.threadIdx.x)
        part, one = cuda.local.array(1, float64), cuda.local.array(1, FLOAT)
        if k < count:
            total = float64(0)
            for n in range(number):
                load(part, parts + (n * count + k) * 8)
                total += part[0]
            one[0] = FLOAT(total)
            store(result + k * ITEM, one)

    return kernel
