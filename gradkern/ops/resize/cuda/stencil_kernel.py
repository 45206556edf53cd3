"""The gradient of resizing by whole factors, with the weights compiled in. A thread has a patch of dX, and adds up the
lines of dY that reach it: with channels last each line along its columns first, else all lines and then the columns.
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
from gradkern.ops.resize.cuda.config import StencilConfig


def build(config: StencilConfig) -> Callable[..., None]:
    """The kernel of a config, as a function that Numba compiles with every argument (SPATIAL_ARGUMENTS) an int64."""
    LAST, (PLANES, ROWS, COLUMNS), CHANNELS = config.last, config.patch, config.channels
    (FACTOR0, HALO0), (FACTOR1, HALO1), (FACTOR2, HALO2) = ((each.factor, each.halo) for each in config.stencils)
    ITEM, STORED, OF_LINE, LINES = ITEMSIZE[config.data], config.lanes, config.of_line, PLANES * ROWS
    SUMS, RESULTS, STORES = LINES * OF_LINE, LINES * COLUMNS * CHANNELS, COLUMNS * CHANNELS // STORED
    FLOAT = float64 if config.compute == "float64" else float32
    own = items(config.threads, config.lanes, LAST, config.patch)
    mirror, add_columns = _mirror(config), i.scaled_adds(config.columns(LINES))
    add, store = _adder(config, 0), i.storer("global", config.data, STORED, config.native_bfloat16)

    @device_function
    def gradient(dY: int, _: int, dX: int, numbers: Any, channels: int, _step: int, a: Any, b: Any, c: Any) -> None:
        image, x0, x1, x2, channel = own(numbers, a[0])
        if image < numbers[5]:
            sums, results = cuda.local.array(SUMS, FLOAT), cuda.local.array(RESULTS, FLOAT)
            out = cuda.local.array(STORED, FLOAT)
            for e in range(SUMS):
                sums[e] = FLOAT(0)
            for e in range(RESULTS):
                results[e] = FLOAT(0)
            o0, o1, o2 = int32(x0 * FACTOR0 - HALO0), int32(x1 * FACTOR1 - HALO1), int32(x2 * FACTOR2 - HALO2)
            add(sums, dY + (image * a[1] * b[1] * c[1] * channels + channel) * ITEM, o0, o1, o2, channels, a, b, c)
            if LAST:
                for e in range(RESULTS):
                    results[e] = sums[e]
            else:
                for line in range(LINES):
                    mirror(sums, int32(line * OF_LINE), x2 == 0, x2 + COLUMNS == c[0])
                add_columns(results, sums)
            to = dX + (image * a[0] * b[0] * c[0] * channels + channel) * ITEM
            for e0 in range(PLANES):
                for e1 in range(ROWS):
                    if x1 + e1 < b[0] and (PLANES == 1 or x0 + e0 < a[0]):
                        for n in range(STORES):
                            if x2 + n < c[0]:
                                for e in range(STORED):
                                    out[e] = results[((e0 * ROWS + e1) * STORES + n) * STORED + e]
                                row = int32(int32(x0 + e0) * int32(b[0])) + x1 + e1
                                place = int32(int32(row * int32(c[0])) + x2 + n)
                                store(i.row_address(to, place, int32(channels * ITEM)), out)

    return spatial_kernel(gradient)


@device_function
def _mirrored(o: int, outputs: int) -> int:
    """Of an output, perhaps outside, the one inside that stands for it. Beyond twice the axis there is any."""
    inside = int32(max(o, int32(-1 - o)))
    return int32(max(int32(min(inside, int32(int32(2 * int32(outputs)) - 1 - inside))), 0))


def _adder(config: StencilConfig, line: int) -> Callable[..., None]:
    """A device function that adds this line of the patch and those behind. at: of the image; o0, o1, o2: the first
    output of the patch.
    """
    PLANE, ROW = config.lines[line]
    MIRRORED0, MIRRORED1, _ = (each.halo > 0 for each in config.stencils)
    LAST, OF_LINE, COUNT = config.last, config.of_line, config.stencils[2].outputs(config.patch[2]) * config.channels
    FLOAT = float64 if config.compute == "float64" else float32
    load = _channels(config) if config.last else _columns(config)
    add_columns, add = i.scaled_adds(config.columns(1)), i.scaled_adds(config.rows(line))
    others = _adder(config, line + 1) if line + 1 < len(config.lines) else _nothing

    @device_function
    def add_line(sums: Any, at: int, o0: int, o1: int, o2: int, channels: int, a: Any, b: Any, c: Any) -> None:
        d, of_line = cuda.local.array(COUNT, FLOAT), cuda.local.array(OF_LINE, FLOAT)
        plane, row = int32(o0 + PLANE), int32(o1 + ROW)
        if MIRRORED0:
            plane = _mirrored(plane, a[1])
        if MIRRORED1:
            row = _mirrored(row, b[1])
        load(d, at, int32(int32(int32(plane * int32(b[1])) + row) * int32(c[1])), o2, channels, c)
        if LAST:
            for e in range(OF_LINE):
                of_line[e] = FLOAT(0)
            add_columns(of_line, d)
            add(sums, of_line)
        else:
            add(sums, d)
        others(sums, at, o0, o1, o2, channels, a, b, c)

    return add_line


@device_function
def _nothing(sums: Any, at: int, o0: int, o1: int, o2: int, channels: int, a: Any, b: Any, c: Any) -> None:
    pass


def _channels(config: StencilConfig) -> Callable[..., None]:
    """load(d, at, line, o, channels, c): the places of a line from o on that the patch's columns have."""
    LANES, COUNT = config.lanes, config.stencils[2].outputs(config.patch[2])
    ITEM, MIRRORED = ITEMSIZE[config.data], config.stencils[2].halo > 0
    load_lanes = side_loader(config, LANES)

    @device_function
    def load(d: Any, at: int, line: int, o: int, channels: int, c: Any) -> None:
        for n in range(COUNT):
            place = int32(o + n)
            if MIRRORED:
                place = _mirrored(place, c[1])
            address = i.row_address(at, int32(line + place), int32(channels * ITEM))
            load_lanes(d, int32(n * LANES), address, True)

    return load


def _columns(config: StencilConfig) -> Callable[..., None]:
    """The same where a line is one of columns; those outside are 0."""
    HALO, GROUP, ITEM = config.stencils[2].halo, config.patch[2] * config.stencils[2].factor, ITEMSIZE[config.data]
    load_group, load_halo = (side_loader(config, max(1, count), piece=config.piece) for count in (GROUP, HALO))

    @device_function
    def load(d: Any, at: int, line: int, o: int, channels: int, c: Any) -> None:
        first = i.row_address(at, int32(line + o), int32(ITEM))
        load_group(d, int32(HALO), first + HALO * ITEM, True)
        if HALO > 0:
            load_halo(d, int32(0), first, o + HALO > 0)
            load_halo(d, int32(HALO + GROUP), first + (HALO + GROUP) * ITEM, o + HALO + GROUP < c[1])

    return load


def _mirror(config: StencilConfig) -> Callable[..., None]:
    """A device function mirror(d, n, first, last): what is outside of a line that begins, or ends, with the patch's
    columns, from what it has inside, in d[n:].
    """
    HALO, GROUP = config.stencils[2].halo, config.patch[2] * config.stencils[2].factor

    @device_function
    def mirror(d: Any, n: int, first: bool, last: bool) -> None:
        for e in range(HALO):
            if first:
                d[n + HALO - 1 - e] = d[n + HALO + e]
            if last:
                d[n + HALO + GROUP + e] = d[n + HALO + GROUP - 1 - e]

    return mirror
