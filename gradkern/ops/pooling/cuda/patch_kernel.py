"""The gradient of pooling with the windows' sizes compiled in. A thread has a patch of dX: it loads each window that
reaches the patch once, and a comparison, or a product, for each of its elements in the patch is all that is left to do.

An index is compared modulo 2^32: planes have fewer elements, and what no forward pass makes is no address here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.separable.positions import items, side_loader, spatial_kernel
from gradkern.kernels.separable.weights import share_of
from gradkern.ops.pooling.cuda.config import MaxPoolConfig, PatchConfig


def tap_of(dilated: bool) -> Callable[..., Any]:
    """tap(x, o, a): which element of window o x is; -1 if none. a: an axis, with reciprocals of its dilation last."""
    DILATED = dilated

    @device_function
    def tap(x: int, o: int, a: Any) -> int:
        t = int32(x + int32(a[7]) - o * int32(a[3]))
        if DILATED and t >= 0:
            whole = i.divided(t, int32(a[8]), int32(a[9]))
            t = int32(-1) if int32(whole * int32(a[6])) != t else whole
        if t >= int32(a[2]) or t < 0:
            t = int32(-1)
        return t

    return tap


def window_loader(config: MaxPoolConfig | PatchConfig, count: int) -> Callable[..., Any]:
    """load(d, found, n, address, index_address, present): `count` elements of dY side by side, into d[n:], and of their
    indices the lower 32 bits, into found[n:]. Zeros where not present.
    """
    COUNT, LOCAL, INDEXED = count, config.local, not (isinstance(config, PatchConfig) and config.average)
    INDICES = COUNT * (1 if LOCAL else 8)
    PIECE, PIECES = (4 if INDICES == 8 and not LOCAL else min(16, INDICES)), max(1, INDICES // 16)
    WORDS = max(1, INDICES // 4)
    load_data, load_index = side_loader(config, COUNT), i.masked_word_loader("global", PIECE)

    @device_function
    def load(d: Any, found: Any, n: int, address: int, index_address: int, present: bool) -> None:
        words = cuda.local.array(WORDS, int32)
        load_data(d, n, address, present)
        if INDEXED:
            for p in range(PIECES):
                load_index(words, int32(p * 4), index_address + p * 16, present)
        for e in range(COUNT if INDEXED else 0):
            if LOCAL:
                found[n + e] = i.byte(words[e // 4], int32(e % 4))
            else:
                found[n + e] = words[2 * e]

    return load


def build(config: PatchConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument (SPATIAL_ARGUMENTS) an int64."""
    LAST, LOCAL, AVERAGE, CHANNELS, FLAT = config.last, config.local, config.average, config.channels, config.flat
    (PLANES, ROWS, COLUMNS), (planes, rows, columns) = config.patch, config.reaches
    ITEM, INDEX, STORED = ITEMSIZE[config.data], (1 if LOCAL else 8), config.lanes
    ACROSS, HELD = (1 if LAST else STORED), PLANES * ROWS * COLUMNS * CHANNELS
    FLOAT = float64 if config.compute == "float64" else float32
    FIRST0, FIRST1, FIRST2, COUNT2 = planes.first, rows.first, columns.first, columns.count
    OF_PLANE = CHANNELS if config.in_tensor else 1
    WANTED = planes.kernel * rows.kernel * columns.kernel if LOCAL else HELD // CHANNELS * OF_PLANE
    own = items(config.threads, config.lanes, LAST, config.patch)
    share = share_of(config.kind, config.compute)
    add, store = _adder(config, 0), i.storer("global", config.data, STORED, config.native_bfloat16)

    @device_function
    def gradient(
        dY: int, indices: int, dX: int, numbers: Any, channels: int, plane_step: int, a: Any, b: Any, c: Any
    ) -> None:
        image, x0, x1, x2, channel = own(numbers, a[0])
        if image < numbers[5] and x1 < b[0]:
            sums, wanted = cuda.local.array(HELD, FLOAT), cuda.local.array(WANTED, int32)
            d, found = cuda.local.array(COUNT2 * CHANNELS, FLOAT), cuda.local.array(COUNT2 * CHANNELS, int32)
            out, shares = cuda.local.array(STORED, FLOAT), cuda.local.array(COUNT2, FLOAT)
            for e in range(HELD):
                sums[e] = FLOAT(0)
            place = int32(int32(x0 * int32(b[0]) + x1) * int32(c[0]) + x2)
            if LOCAL and not AVERAGE:
                for e in range(WANTED):
                    wanted[e] = int32(e)
            elif not AVERAGE:
                # the number of the first channel, counted in elements of planes: what its indices begin at
                base = int32(int32((image * channels + channel) * plane_step) + place)
                for e0 in range(PLANES):
                    for e1 in range(ROWS):
                        for e2 in range(COLUMNS):
                            for e in range(OF_PLANE):
                                of_plane = int32(base + int32(e * int32(plane_step)))
                                of_row = int32(of_plane + int32(int32(int32(e0 * int32(b[0])) + e1) * int32(c[0])))
                                wanted[((e0 * ROWS + e1) * COLUMNS + e2) * OF_PLANE + e] = int32(of_row + e2)
            step = int32(channels) if LAST else int32(1)
            start = image * a[1] * b[1] * c[1] * channels + channel
            o0 = int32(0)
            if not FLAT:
                o0 = int32(i.divided(x0, int32(a[4]), int32(a[5])) + FIRST0)
            o1 = int32(i.divided(x1, int32(b[4]), int32(b[5])) + FIRST1)
            o2 = int32(i.divided(x2, int32(c[4]), int32(c[5])) + FIRST2)
            if AVERAGE:
                for w in range(COUNT2):
                    shares[w] = share(int32(o2 + w), c)
            o = int32(int32(int32(o0 * int32(b[1]) + o1) * int32(c[1])) + o2)
            add(
                sums, d, found, wanted, shares, dY + start * ITEM, indices + start * INDEX, o, o0, o1, o2, step, a, b, c
            )
            to = dX + (image * a[0] * b[0] * c[0] * channels + channel) * ITEM
            for e0 in range(PLANES):
                for e1 in range(ROWS):
                    if x1 + e1 < b[0] and (PLANES == 1 or x0 + e0 < a[0]):
                        for n in range(COLUMNS // ACROSS):
                            e2 = n * ACROSS
                            if x2 + e2 < c[0]:
                                for e in range(STORED):
                                    out[e] = sums[((e0 * ROWS + e1) * COLUMNS + e2) * CHANNELS + e]
                                of_row = int32(int32(int32(e0 * int32(b[0])) + e1) * int32(c[0]))
                                store(i.row_address(to, int32(int32(place + of_row) + e2), int32(step * ITEM)), out)

    return spatial_kernel(gradient)


def _adder(config: PatchConfig, line: int) -> Callable[..., None]:
    """A device function that adds up the windows that reach the patch, of this line of them and those behind; d and
    found hold one line.
    """
    (planes, rows, columns), (PLANE, ROW), FLAT = config.reaches, config.lines[line], config.flat
    CHANNELS, GROUP, ITEM, INDEX = config.channels, config.group, ITEMSIZE[config.data], (1 if config.local else 8)
    FIRST0, FIRST1, FIRST2 = planes.first, rows.first, columns.first
    # of a line: windows that are loaded one by one, those that one access has, and those behind
    LEAD = -FIRST2 if GROUP else columns.count
    BEHIND = columns.count - LEAD - GROUP
    load, load_group = window_loader(config, CHANNELS), window_loader(config, max(1, GROUP))
    add, add_products = i.adds_where_equal(config.table(line), config.compute), i.multiply_adds(config.averages(line))
    AVERAGE, COUNT2, FLOAT = config.average, columns.count, (float64 if config.compute == "float64" else float32)
    share = share_of(config.kind, config.compute)
    others = _adder(config, line + 1) if line + 1 < len(config.lines) else _nothing

    @device_function
    def add_line(
        sums: Any, d: Any, found: Any, wanted: Any, shares: Any, at: int, at_index: int, o: int, o0: int, o1: int,
        o2: int, step: int, a: Any, b: Any, c: Any,
    ) -> None:  # fmt: skip
        """o0, o1, o2: of the first window, o: its place in the image; at, at_index: of the image."""
        products = cuda.local.array(COUNT2, FLOAT)
        inside = (ROW + FIRST1 >= 0 or o1 + ROW >= 0) and o1 + ROW < int32(b[1])
        if not FLAT:
            inside = inside and (PLANE + FIRST0 >= 0 or o0 + PLANE >= 0) and o0 + PLANE < int32(a[1])
        first = int32(o + int32(int32(int32(PLANE * int32(b[1])) + ROW) * int32(c[1])))
        of_data = i.row_address(at, first, int32(step * ITEM))
        of_index = i.row_address(at_index, first, int32(step * INDEX))
        for w in range(LEAD):
            present = inside and o2 + w >= 0 and o2 + w < int32(c[1])
            load(d, found, int32(w * CHANNELS), of_data + w * step * ITEM, of_index + w * step * INDEX, present)
        if GROUP > 0:
            present = inside and o2 + LEAD < int32(c[1])
            load_group(d, found, int32(LEAD), of_data + LEAD * ITEM, of_index + LEAD * INDEX, present)
        for n in range(BEHIND):
            w = n + LEAD + GROUP
            present = inside and o2 + w < int32(c[1])
            load(d, found, int32(w * CHANNELS), of_data + w * step * ITEM, of_index + w * step * INDEX, present)
        if AVERAGE:
            of_line = share(int32(o1 + ROW), b)
            if not FLAT:
                of_line = of_line * share(int32(o0 + PLANE), a)
            for w in range(COUNT2):
                products[w] = of_line * shares[w]
            add_products(sums, d, products)
        else:
            add(sums, d, found, wanted)
        others(sums, d, found, wanted, shares, at, at_index, o, o0, o1, o2, step, a, b, c)

    return add_line


@device_function
def _nothing(
    sums: Any, d: Any, found: Any, wanted: Any, shares: Any, at: int, at_index: int, o: int, o0: int, o1: int,
    o2: int, step: int, a: Any, b: Any, c: Any,
) -> None:  # fmt: skip
    pass
