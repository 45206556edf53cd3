"""Max pooling with the windows' sizes compiled in. A thread has some neighbouring outputs, or channels of one, and
loads each row of their windows side by side.
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
from gradkern.kernels.separable.positions import items, spatial_kernel
from gradkern.ops.pooling.cuda.config import ForwardConfig

__all__ = ["build"]


def build(config: ForwardConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument (SPATIAL_ARGUMENTS) an int64."""
    (KERNEL1, STRIDE1, BEGIN1), (KERNEL2, STRIDE2, BEGIN2) = config.windows
    LAST, LOCAL, VALUES, INDICES, OUTPUTS = config.last, config.local, config.values, config.indices, config.outputs
    CHANNELS, GROUP, COUNT = (config.lanes if config.last else 1), config.group, config.count
    # of a row: elements that are loaded one by one, those that one access has, and those behind
    LEAD = BEGIN2 if GROUP else COUNT
    BEHIND, HELD = max(0, COUNT - LEAD - GROUP), OUTPUTS * CHANNELS
    ITEM, INDEX, STORED = ITEMSIZE[config.data], (1 if LOCAL else 8), (CHANNELS if LAST else config.lanes)
    FLOAT = float64 if config.compute == "float64" else float32
    PIECE = STORED * INDEX if STORED * INDEX < 16 else 16
    PIECES, WORDS = STORED * INDEX // PIECE, max(1, PIECE // 4)
    EACH = PIECE // INDEX
    own = items(config.threads, config.lanes, LAST, (1, OUTPUTS))
    load, load_group = _loader(config, CHANNELS), _loader(config, max(1, GROUP))
    keep = i.keep_largest(config.table())
    store = i.storer("global", config.data, STORED, config.native_bfloat16)
    store_piece = i.word_storer("global", PIECE)

    @device_function
    def forward(
        X: int, indices: int, Y: int, numbers: Any, channels: int, plane_step: int, a: Any, b: Any, c: Any
    ) -> None:
        """`own` counts outputs here."""
        image, _, o1, o2, channel = own(numbers, a[1])
        if image < numbers[5]:
            most, found = cuda.local.array(HELD, FLOAT), cuda.local.array(HELD, int32)
            d, words = cuda.local.array(max(COUNT, LEAD + GROUP) * CHANNELS, FLOAT), cuda.local.array(WORDS, int32)
            out = cuda.local.array(STORED, FLOAT)
            step = int32(channels) if LAST else int32(1)
            begin1, begin2 = int32(int32(o1 * STRIDE1) - BEGIN1), int32(int32(o2 * STRIDE2) - BEGIN2)
            top = int32(max(-begin1, int32(0)))
            for n in range(OUTPUTS):
                left = int32(
                    max(-int32(begin2 + n * STRIDE2), int32(0))
                )  # the first element of a window that is inside
                first = int32(int32(top * KERNEL2) + left)
                if not LOCAL:
                    first = int32(int32(int32(begin1 + top) * int32(c[0])) + begin2 + n * STRIDE2 + left)
                for e in range(CHANNELS):
                    most[n * CHANNELS + e], found[n * CHANNELS + e] = FLOAT(-math.inf), first
            at = X + (image * b[0] * c[0] * channels + channel) * ITEM
            for t1 in range(KERNEL1):
                x1 = int32(begin1 + t1)
                inside = x1 >= 0 and x1 < int32(b[0])
                row = i.row_address(at, int32(int32(x1 * int32(c[0])) + begin2), int32(step * ITEM))
                for w in range(LEAD):
                    present = inside and begin2 + w >= 0 and begin2 + w < int32(c[0])
                    load(d, int32(w * CHANNELS), row + w * step * ITEM, present)
                if GROUP > 0:
                    load_group(d, int32(LEAD), row + LEAD * ITEM, inside and begin2 + LEAD < int32(c[0]))
                for n in range(BEHIND):
                    w = n + LEAD + GROUP
                    load(d, int32(w * CHANNELS), row + w * step * ITEM, inside and begin2 + w < int32(c[0]))
                base = int32(t1 * KERNEL2)
                if not LOCAL:
                    base = int32(int32(x1 * int32(c[0])) + begin2)
                keep(most, found, d, base)
            to = image * b[1] * c[1] * channels + channel
            for n in range(1 if LAST else OUTPUTS // STORED):
                if o2 + n * STORED < c[1] or LAST:
                    o = int32(int32(o1 * int32(c[1])) + o2 + (0 if LAST else n * STORED))
                    if VALUES:
                        for e in range(STORED):
                            out[e] = most[n * STORED + e]
                        store(i.row_address(Y + to * ITEM, o, int32(step * ITEM)), out)
                    if INDICES:
                        target = i.row_address(indices + to * INDEX, o, int32(step * INDEX))
                        base = (image * channels + channel) * plane_step
                        for p in range(PIECES):
                            for e in range(WORDS):
                                words[e] = int32(0)
                            for e in range(EACH):
                                place = found[n * STORED + p * EACH + e]
                                if LOCAL:
                                    words[e // 4] |= int32(place << (8 * (e % 4)))
                                else:
                                    index = base + place + ((p * EACH + e) * plane_step if LAST else 0)
                                    words[2 * e], words[2 * e + 1] = int32(index), int32(index >> 32)
                            store_piece(target + p * PIECE, words)

    return spatial_kernel(forward)


def _loader(config: ForwardConfig, count: int) -> Callable[..., Any]:
    """load(d, n, address, present): `count` elements side by side into d[n:]; minus infinity where not present."""
    COUNT, SIZE = count, count * ITEMSIZE[config.data]
    PIECE, PIECES, WORDS = min(16, SIZE), max(1, SIZE // 16), max(1, SIZE // 4)
    FLOAT = float64 if config.compute == "float64" else float32
    load_piece, unpack = i.masked_word_loader("global", PIECE), i.unpacker(config.data, COUNT)

    @device_function
    def load(d: Any, n: int, address: int, present: bool) -> None:
        words, values = cuda.local.array(WORDS, int32), cuda.local.array(COUNT, FLOAT)
        for p in range(PIECES):
            load_piece(words, int32(p * 4), address + p * 16, present)
        unpack(values, words, int32(0))
        for e in range(COUNT):
            d[n + e] = values[e] if present else FLOAT(-math.inf)

    return load
