"""Max pooling and its gradient, a thread to some neighbouring channels or columns.

The gradient asks, for each element of dX, which windows hold it, and adds up the dY of those whose index it is. An
index is compared modulo 2^32: planes have fewer elements, and what no forward pass makes is no address here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.separable.config import Kind
from gradkern.kernels.separable.positions import items, spatial_kernel
from gradkern.kernels.separable.weights import weights
from gradkern.ops.pooling.cuda.config import MaxPoolConfig
from gradkern.ops.pooling.cuda.forward_kernel import index_storer
from gradkern.ops.pooling.cuda.patch_kernel import tap_of, window_loader


def build(config: MaxPoolConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument (SPATIAL_ARGUMENTS) an int64."""
    return spatial_kernel(_gradient(config) if config.operator == "MaxPoolGrad" else _forward(config))


def _gradient(config: MaxPoolConfig) -> Callable[..., None]:
    LANES, LAST, LOCAL, ITEM = config.lanes, config.last, config.local, ITEMSIZE[config.data]
    FLOAT = float64 if config.compute == "float64" else float32
    CHANNELS = LANES if LAST else 1
    INDEX = 1 if LOCAL else 8
    own, tap = items(config.threads, LANES, LAST, config.patch), tap_of(config.dilated)
    first, last, _ = weights(Kind("windows"), config.compute)
    load = window_loader(config, CHANNELS)
    store = i.storer("global", config.data, LANES, config.native_bfloat16)

    @device_function
    def gradient(
        dY: int, indices: int, dX: int, numbers: Any, channels: int, plane_step: int, a: Any, b: Any, c: Any
    ) -> None:
        image, x0, x1, x2, channel = own(numbers, a[0])
        if image < numbers[5]:
            sums, d = cuda.local.array(LANES, FLOAT), cuda.local.array(CHANNELS, FLOAT)
            found = cuda.local.array(CHANNELS, int32)
            for e in range(LANES):
                sums[e] = FLOAT(0)
            # the number of the first channel, counted in elements of planes: what its indices begin at
            base = int32((image * channels + channel) * plane_step)
            place = int32((int32(x0 * int32(b[0]) + x1)) * int32(c[0]) + x2)
            step = int32(channels)
            start = image * a[1] * b[1] * c[1] * channels + channel
            at, at_index = dY + start * ITEM, indices + start * INDEX
            last2 = last(int32(x2 + (1 if LAST else LANES) - 1), c)
            for o0 in range(first(x0, a), last(x0, a) + 1):
                tap0 = tap(x0, int32(o0), a)
                for o1 in range(first(x1, b), last(x1, b) + 1):
                    tap1 = tap(x1, int32(o1), b)
                    line = int32(int32(o0 * int32(b[1]) + o1) * int32(c[1]))
                    for o2 in range(first(x2, c), last2 + 1):
                        o = int32(line + o2)
                        of_index = i.row_address(at_index, o, int32(step * INDEX))
                        load(d, found, int32(0), i.row_address(at, o, int32(step * ITEM)), of_index, True)
                        for e in range(LANES):
                            if LOCAL:
                                tap2 = tap(int32(x2 + (0 if LAST else e)), int32(o2), c)
                                wanted = int32(int32(tap0 * int32(b[2]) + tap1) * int32(c[2]) + tap2)
                                if tap0 < 0 or tap1 < 0 or tap2 < 0:
                                    wanted = int32(-1)
                            else:
                                wanted = int32(base + place + (int32(e * int32(plane_step)) if LAST else e))
                            if found[e if LAST else 0] == wanted:
                                sums[e] += d[e if LAST else 0]
            to = image * a[0] * b[0] * c[0] * channels + channel
            store(i.row_address(dX + to * ITEM, place, int32(step * ITEM)), sums)

    return gradient


def _forward(config: MaxPoolConfig) -> Callable[..., None]:
    LANES, LAST, LOCAL, ITEM = config.lanes, config.last, config.local, ITEMSIZE[config.data]
    VALUES, INDICES, INDEX = config.values, config.indices, 1 if config.local else 8
    FLOAT = float64 if config.compute == "float64" else float32
    own = items(config.threads, LANES, LAST, config.patch)
    load = i.loader("global", config.data, LANES)
    store = i.storer("global", config.data, LANES, config.native_bfloat16)
    store_indices = index_storer(LOCAL, LANES)

    @device_function
    def forward(
        X: int, indices: int, Y: int, numbers: Any, channels: int, plane_step: int, a: Any, b: Any, c: Any
    ) -> None:
        """`own` counts outputs here."""
        image, o0, o1, o2, channel = own(numbers, a[1])
        if image < numbers[5]:
            most, x = cuda.local.array(LANES, FLOAT), cuda.local.array(LANES, FLOAT)
            found = cuda.local.array(LANES, int32)
            for e in range(LANES):
                most[e], found[e] = FLOAT(-math.inf), int32(-1)
            step = int32(channels)
            at = X + (image * a[0] * b[0] * c[0] * channels + channel) * ITEM
            for t0 in range(int32(a[2])):
                x0 = int32(o0 * int32(a[3]) + t0 * int32(a[6]) - int32(a[7]))
                if x0 >= 0 and x0 < int32(a[0]):
                    for t1 in range(int32(b[2])):
                        x1 = int32(o1 * int32(b[3]) + t1 * int32(b[6]) - int32(b[7]))
                        if x1 >= 0 and x1 < int32(b[0]):
                            for t2 in range(int32(c[2])):
                                x2 = int32(o2 * int32(c[3]) + t2 * int32(c[6]) - int32(c[7]))
                                if x2 >= 0 and x2 < int32(c[0]):
                                    place = int32(int32(x0 * int32(b[0]) + x1) * int32(c[0]) + x2)
                                    load(x, i.row_address(at, place, int32(step * ITEM)))
                                    index = place
                                    if LOCAL:
                                        index = int32(int32(t0 * int32(b[2]) + t1) * int32(c[2]) + t2)
                                    for e in range(LANES):
                                        nan = x[e] != x[e] and most[e] == most[e]
                                        if found[e] < 0 or x[e] > most[e] or nan:
                                            most[e], found[e] = x[e], index
            o = int32(int32(o0 * int32(b[1]) + o1) * int32(c[1]) + o2)
            to = image * a[1] * b[1] * c[1] * channels + channel
            if VALUES:
                store(i.row_address(Y + to * ITEM, o, int32(step * ITEM)), most)
            if INDICES:
                target = i.row_address(indices + to * INDEX, o, int32(step * INDEX))
                store_indices(target, found, int32(0), (image * channels + channel) * plane_step, plane_step)

    return forward
