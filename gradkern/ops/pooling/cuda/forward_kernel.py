"""Max pooling with the windows' sizes compiled in. A thread has some neighbouring outputs, or channels of one, and
loads each row of their windows side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.separable.positions import items, side_loader, spatial_kernel
from gradkern.ops.pooling.cuda.config import ForwardConfig


def build(config: ForwardConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument (SPATIAL_ARGUMENTS) an int64."""
    (KERNEL0, STRIDE0, BEGIN0), (KERNEL1, STRIDE1, BEGIN1), (KERNEL2, STRIDE2, BEGIN2) = config.windows
    LAST, LOCAL, VALUES, INDICES, OUTPUTS = config.last, config.local, config.values, config.indices, config.outputs
    FLAT = config.flat
    CHANNELS, GROUP, COUNT = (config.lanes if config.last else 1), config.group, config.count
    # of a row: elements that are loaded one by one, those that one access has, and those behind
    LEAD = BEGIN2 if GROUP else COUNT
    BEHIND, HELD = max(0, COUNT - LEAD - GROUP), OUTPUTS * CHANNELS
    ITEM, INDEX, STORED = ITEMSIZE[config.data], (1 if LOCAL else 8), (CHANNELS if LAST else config.lanes)
    FLOAT = float64 if config.compute == "float64" else float32
    own = items(config.threads, config.lanes, LAST, config.patch)
    load, load_group = (side_loader(config, count, -math.inf) for count in (CHANNELS, max(1, GROUP)))
    keep = i.keep_largest(config.table())
    store = i.storer("global", config.data, STORED, config.native_bfloat16)
    store_indices = index_storer(LOCAL, STORED)

    @device_function
    def forward(
        X: int, indices: int, Y: int, numbers: Any, channels: int, plane_step: int, a: Any, b: Any, c: Any
    ) -> None:
        """`own` counts outputs here."""
        image, o0, o1, o2, channel = own(numbers, a[1])
        if image < numbers[5]:
            most, found = cuda.local.array(HELD, FLOAT), cuda.local.array(HELD, int32)
            d, out = cuda.local.array(max(COUNT, LEAD + GROUP) * CHANNELS, FLOAT), cuda.local.array(STORED, FLOAT)
            step = int32(channels) if LAST else int32(1)
            begin1, begin2 = int32(int32(o1 * STRIDE1) - BEGIN1), int32(int32(o2 * STRIDE2) - BEGIN2)
            begin0, planes, outputs0 = int32(int32(o0 * STRIDE0) - BEGIN0), a[0], a[1]
            if FLAT:
                begin0, planes, outputs0 = int32(0), int64(1), int64(1)
            # of a window: the first plane, row and element that are inside
            front, top = int32(max(-begin0, int32(0))), int32(max(-begin1, int32(0)))
            for n in range(OUTPUTS):
                left = int32(max(-int32(begin2 + n * STRIDE2), int32(0)))
                first = int32(int32(int32(front * KERNEL1 + top) * KERNEL2) + left)
                if not LOCAL:
                    line = int32(int32(int32(begin0 + front) * int32(b[0])) + begin1 + top)
                    first = int32(int32(line * int32(c[0])) + begin2 + n * STRIDE2 + left)
                for e in range(CHANNELS):
                    most[n * CHANNELS + e], found[n * CHANNELS + e] = FLOAT(-math.inf), first
            at = X + (image * planes * b[0] * c[0] * channels + channel) * ITEM
            for t0 in range(KERNEL0):
                for t1 in range(KERNEL1):
                    x0, x1 = int32(begin0 + t0), int32(begin1 + t1)
                    inside = x1 >= 0 and x1 < int32(b[0]) and (FLAT or (x0 >= 0 and x0 < int32(planes)))
                    line = int32(int32(int32(int32(x0 * int32(b[0])) + x1) * int32(c[0])) + begin2)
                    row = i.row_address(at, line, int32(step * ITEM))
                    for w in range(LEAD):
                        present = inside and begin2 + w >= 0 and begin2 + w < int32(c[0])
                        load(d, int32(w * CHANNELS), row + w * step * ITEM, present)
                    if GROUP > 0:
                        load_group(d, int32(LEAD), row + LEAD * ITEM, inside and begin2 + LEAD < int32(c[0]))
                    for n in range(BEHIND):
                        w = n + LEAD + GROUP
                        load(d, int32(w * CHANNELS), row + w * step * ITEM, inside and begin2 + w < int32(c[0]))
                    keep(most, found, d, int32((t0 * KERNEL1 + t1) * KERNEL2) if LOCAL else line)
            to = image * outputs0 * b[1] * c[1] * channels + channel
            for n in range(1 if LAST else OUTPUTS // STORED):
                if o2 + n * STORED < c[1] or LAST:
                    o = int32(int32(int32(o0 * int32(b[1])) + o1) * int32(c[1]))
                    o = int32(o + o2 + (0 if LAST else n * STORED))
                    if VALUES:
                        for e in range(STORED):
                            out[e] = most[n * STORED + e]
                        store(i.row_address(Y + to * ITEM, o, int32(step * ITEM)), out)
                    if INDICES:
                        target = i.row_address(indices + to * INDEX, o, int32(step * INDEX))
                        base, apart = (image * channels + channel) * plane_step, plane_step if LAST else 0
                        store_indices(target, found, int32(n * STORED), base, apart)

    return spatial_kernel(forward)


def index_storer(local: bool, count: int) -> Callable[..., Any]:
    """store(address, found, n, base, apart): the indices of `count` outputs side by side, found[n:]; those of eight
    bytes are counted from base, base + apart, ...
    """
    COUNT, LOCAL, SIZE = count, local, 1 if local else 8
    PIECE = min(16, count * SIZE)
    PIECES, EACH, WORDS = COUNT * SIZE // PIECE, PIECE // SIZE, max(1, PIECE // 4)
    store_piece = i.word_storer("global", PIECE)

    @device_function
    def store(address: int, found: Any, n: int, base: int, apart: int) -> None:
        words = cuda.local.array(WORDS, int32)
        for p in range(PIECES):
            for e in range(WORDS):
                words[e] = int32(0)
            for e in range(EACH):
                place = found[n + p * EACH + e]
                if LOCAL:
                    words[e // 4] |= int32(place << (8 * (e % 4)))
                else:
                    index = base + place + (p * EACH + e) * apart
                    words[2 * e], words[2 * e + 1] = int32(index), int32(index >> 32)
            store_piece(address + p * PIECE, words)

    return store
