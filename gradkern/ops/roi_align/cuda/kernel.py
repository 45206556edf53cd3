"""The kernels of ROI align's gradients: of the image, of the regions, and the samples that are maxima."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.barriers import wait_for_block
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.roi_align.cuda.config import RoiConfig
from gradkern.ops.roi_align.geometry import geometry


class _Code:
    """Device functions that the three kernels share."""

    def __init__(self, config: RoiConfig) -> None:
        self.compute = "float64" if config.dtype == "float64" else "float32"
        FLOAT = float64 if self.compute == "float64" else float32
        ROI, WIDE, BYTES = ITEMSIZE[config.roi], config.index == 8, config.index
        load, load_roi = i.loader("global", config.dtype, 1), i.loader("global", config.roi, 1)
        load_index = i.word_loader("global", BYTES)
        axis, at, around = geometry(device_function, FLOAT, int64, config.nearest, config.corners)
        self.float, self.load, self.at, self.around = FLOAT, load, at, around

        @device_function
        def image_of(images: int, r: int) -> Any:
            words = cuda.local.array(2, int32)
            load_index(words, 0, images + r * BYTES)
            if WIDE and words[1] != 0:
                return int32(-1)
            return words[0]

        @device_function
        def axes_of(
            rois: int, r: int, rows: int, columns: int, least: int, most: int, scale_x: Any, scale_y: Any, offset: Any
        ) -> Any:
            corner = cuda.local.array(1, FLOAT)
            first = rois + r * (4 * ROI)
            load_roi(corner, first)
            x1 = corner[0]
            load_roi(corner, first + ROI)
            y1 = corner[0]
            load_roi(corner, first + 2 * ROI)
            x2 = corner[0]
            load_roi(corner, first + 3 * ROI)
            y = axis(y1, corner[0], scale_y, rows, least, most, offset)
            return y, axis(x1, x2, scale_x, columns, least, most, offset)

        @device_function
        def corners_of(X: int, y0: int, y1: int, x0: int, x1: int, x_y: int, x_x: int) -> Any:
            one = cuda.local.array(1, FLOAT)
            load(one, X + y0 * x_y + x0 * x_x)
            a = one[0]
            load(one, X + y0 * x_y + x1 * x_x)
            b = one[0]
            load(one, X + y1 * x_y + x0 * x_x)
            p = one[0]
            load(one, X + y1 * x_y + x1 * x_x)
            return a, b, p, one[0]

        self.image_of, self.axes_of, self.corners_of = image_of, axes_of, corners_of


def build_best(config: RoiConfig) -> Callable[..., None]:
    """The kernel of the samples that are maxima, one thread an output: along y, -1 of one outside, and along x."""
    code = _Code(config)
    FLOAT, at, around = code.float, code.at, code.around
    image_of, axes_of, corners_of = code.image_of, code.axes_of, code.corners_of
    store, value = i.word_storer("global", 8), i.float_of_bits(code.compute)

    def kernel(
        X: int, D: int, rois: int, images: int, best: int, result: int, N: int, C: int, H: int, W: int, R: int,
        rows: int, columns: int, x_n: int, x_c: int, x_y: int, x_x: int, d_r: int, d_c: int, d_y: int, d_x: int,
        least: int, most: int, scale_x: int, scale_y: int, in_offset: int, out_offset: int,
    ) -> None:  # fmt: skip
        e = int64(cuda.blockIdx.x) * int32(cuda.blockDim.x) + int32(cuda.threadIdx.x)
        if e < R * C * rows * columns:
            plane = e // columns
            x = e - plane * columns
            rest = plane // rows
            y = plane - rest * rows
            r = rest // C
            image = image_of(images, r)
            found_y, found_x, greatest = int64(-1), int64(-1), FLOAT(0)
            if 0 <= image < N:
                offset = value(out_offset)
                of_y, of_x = axes_of(
                    rois, r, rows, columns, least, most, value(scale_x), value(scale_y), value(in_offset)
                )
                base = X + image * x_n + (rest - r * C) * x_c
                n_y, n_x = of_y[2], of_x[2]
                for kx in range(n_x):
                    sx = x * n_x + kx
                    in_x, x0, x1, fx = around(at(sx, of_x[0], of_x[1], of_x[3], offset), W)
                    for ky in range(n_y):
                        sy = y * n_y + ky
                        in_y, y0, y1, fy = around(at(sy, of_y[0], of_y[1], of_y[3], offset), H)
                        interpolated, place = FLOAT(0), int64(-1)
                        if in_x and in_y:
                            a, b, p, q = corners_of(base, y0, y1, x0, x1, x_y, x_x)
                            interpolated = (FLOAT(1) - fy) * ((FLOAT(1) - fx) * a + fx * b)
                            interpolated += fy * ((FLOAT(1) - fx) * p + fx * q)
                            place = int64(sy)
                        if (kx == 0 and ky == 0) or interpolated > greatest:
                            found_y, found_x, greatest = place, int64(sx), interpolated
            sample = cuda.local.array(2, int32)
            sample[0], sample[1] = int32(found_y), int32(found_x)
            store(best + e * 8, sample)

    return kernel


def build_images(config: RoiConfig) -> Callable[..., None]:
    """The kernel of dX: a block has a tile of pixels and some channels of an image, finds the regions that reach the
    tile, and each thread adds up their outputs, in the order of the regions.
    """
    code = _Code(config)
    FLOAT, load, at, around = code.float, code.load, code.at, code.around
    image_of, axes_of = code.image_of, code.axes_of
    (TILE_Y, TILE_X), LANES, CHANNELS, MAXIMUM = config.tile, config.lanes, config.channels, config.maximum
    BLOCK, WORDS = TILE_Y * TILE_X * LANES, -(-TILE_Y * TILE_X * LANES // 32)
    store, value = i.storer("global", config.dtype, 1, config.native_bfloat16), i.float_of_bits(code.compute)
    load_best = i.word_loader("global", 8)

    @device_function
    def reach(first: Any, behind: Any, start: Any, size: Any, divisor: Any, offset: Any, samples: int) -> Any:
        """The samples, perhaps with some more, whose coordinates are around elements from first to behind."""
        low, high = FLOAT(0), FLOAT(samples - 1)
        if size != 0 and divisor != 0:
            a = (first - FLOAT(1) - start) * FLOAT(divisor) / size + offset
            b = (behind + FLOAT(1) - start) * FLOAT(divisor) / size + offset
            low, high = max(low, min(a, b) - FLOAT(1)), min(high, max(a, b) + FLOAT(1))
        elif not (first - FLOAT(1) <= start <= behind + FLOAT(1)):
            high = FLOAT(-1)
        if not low <= high:
            return int64(0), int64(-1)
        return int64(low), int64(math.ceil(high))

    @device_function
    def weight(sample: int, place: int, start: Any, size: Any, divisor: Any, offset: Any, extent: int) -> Any:
        counts, low, high, part = around(at(sample, start, size, divisor, offset), extent)
        total = FLOAT(0)
        if counts and low == place:
            total += FLOAT(1) - part
        if counts and high == place:
            total += part
        return total

    @device_function
    def cell_weight(
        cell: int, n: int, low: int, high: int, place: int, start: Any, size: Any, divisor: Any, offset: Any,
        extent: int,
    ) -> Any:  # fmt: skip
        total = FLOAT(0)
        for s in range(max(low, cell * n), min(high, cell * n + n - 1) + 1):
            total += weight(s, place, start, size, divisor, offset, extent)
        return total

    def kernel(
        X: int, D: int, rois: int, images: int, best: int, result: int, N: int, C: int, H: int, W: int, R: int,
        rows: int, columns: int, x_n: int, x_c: int, x_y: int, x_x: int, d_r: int, d_c: int, d_y: int, d_x: int,
        least: int, most: int, scale_x: int, scale_y: int, in_offset: int, out_offset: int,
    ) -> None:  # fmt: skip
        thread, block = int32(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        hits, words = cuda.shared.array(BLOCK, int32), cuda.shared.array(WORDS, int32)
        wide, parts = (W + TILE_X - 1) // TILE_X, (C + LANES * CHANNELS - 1) // (LANES * CHANNELS)
        high = (H + TILE_Y - 1) // TILE_Y
        rest = block // wide
        left = (block - rest * wide) * TILE_X
        line = rest // high
        top = (rest - line * high) * TILE_Y
        image = line // parts
        c0 = (line - image * parts) * (LANES * CHANNELS) + thread % LANES
        x, y = left + thread // LANES % TILE_X, top + thread // (LANES * TILE_X)
        sx, sy, offset, before = value(scale_x), value(scale_y), value(out_offset), value(in_offset)
        sample, d = cuda.local.array(2, int32), cuda.local.array(1, FLOAT)
        total = cuda.local.array(CHANNELS, FLOAT)
        for k in range(CHANNELS):
            total[k] = FLOAT(0)
        for base in range(0, R, BLOCK):
            hit = int32(0)
            if base + thread < R and image_of(images, base + thread) == image:
                of_y, of_x = axes_of(rois, base + thread, rows, columns, least, most, sx, sy, before)
                y0, y1 = reach(FLOAT(top), FLOAT(top + TILE_Y - 1), of_y[0], of_y[1], of_y[3], offset, of_y[2] * rows)
                x0, x1 = reach(
                    FLOAT(left), FLOAT(left + TILE_X - 1), of_x[0], of_x[1], of_x[3], offset, of_x[2] * columns
                )
                if y0 <= y1 and x0 <= x1:
                    hit = int32(1)
            hits[thread] = hit
            wait_for_block()
            if thread < WORDS:
                word = int32(0)
                for j in range(32):
                    if thread * 32 + j < BLOCK:
                        word |= hits[thread * 32 + j] << j
                words[thread] = word
            wait_for_block()
            for w in range(WORDS):
                word = words[w]
                for j in range(32 if word != 0 else 0):
                    if not ((word >> j) & 1 and y < H and x < W):
                        continue
                    r = int64(base + w * 32 + j)
                    of_y, of_x = axes_of(rois, r, rows, columns, least, most, sx, sy, before)
                    n_y, n_x = of_y[2], of_x[2]
                    y0, y1 = reach(FLOAT(y), FLOAT(y), of_y[0], of_y[1], of_y[3], offset, n_y * rows)
                    x0, x1 = reach(FLOAT(x), FLOAT(x), of_x[0], of_x[1], of_x[3], offset, n_x * columns)
                    if y0 > y1 or x0 > x1:
                        continue
                    for oy in range(y0 // n_y, min(y1 // n_y + 1, rows)):
                        wy = FLOAT(1)
                        if not MAXIMUM:
                            wy = cell_weight(oy, n_y, y0, y1, y, of_y[0], of_y[1], of_y[3], offset, H)
                            wy /= FLOAT(n_y * n_x)
                        if wy == 0:
                            continue
                        for ox in range(x0 // n_x, min(x1 // n_x + 1, columns)):
                            wx = FLOAT(1)
                            if not MAXIMUM:
                                wx = wy * cell_weight(ox, n_x, x0, x1, x, of_x[0], of_x[1], of_x[3], offset, W)
                            if wx == 0:
                                continue
                            for k in range(CHANNELS):
                                c = c0 + k * LANES
                                if c >= C:
                                    continue
                                load(d, D + r * d_r + c * d_c + oy * d_y + ox * d_x)
                                factor = wx
                                if MAXIMUM:
                                    load_best(sample, 0, best + (((r * C + c) * rows + oy) * columns + ox) * 8)
                                    factor = FLOAT(0)
                                    if sample[0] >= 0:
                                        factor = weight(sample[0], y, of_y[0], of_y[1], of_y[3], offset, H) * weight(
                                            sample[1], x, of_x[0], of_x[1], of_x[3], offset, W
                                        )
                                if factor != 0:
                                    total[k] += factor * d[0]
            wait_for_block()
        if y < H and x < W:
            for k in range(CHANNELS):
                c = c0 + k * LANES
                if c < C:
                    d[0] = total[k]
                    store(result + image * x_n + c * x_c + y * x_y + x * x_x, d)

    return kernel


def build_regions(config: RoiConfig) -> Callable[..., None]:
    """The kernel of the regions' gradients, one block a region: threads add up their outputs, then the block."""
    code = _Code(config)
    FLOAT, load, at, around, MAXIMUM = code.float, code.load, code.at, code.around, config.maximum
    image_of, axes_of, corners_of, ROI = code.image_of, code.axes_of, code.corners_of, ITEMSIZE[config.roi]
    BLOCK = config.tile[0] * config.tile[1] * config.lanes
    store, value = i.storer("global", config.roi, 1, config.native_bfloat16), i.float_of_bits(code.compute)
    load_best = i.word_loader("global", 8)

    def kernel(
        X: int, D: int, rois: int, images: int, best: int, result: int, N: int, C: int, H: int, W: int, R: int,
        rows: int, columns: int, x_n: int, x_c: int, x_y: int, x_x: int, d_r: int, d_c: int, d_y: int, d_x: int,
        least: int, most: int, scale_x: int, scale_y: int, in_offset: int, out_offset: int,
    ) -> None:  # fmt: skip
        thread, r = int32(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        shared = cuda.shared.array(BLOCK, FLOAT)
        sample, d, g = cuda.local.array(2, int32), cuda.local.array(1, FLOAT), cuda.local.array(4, FLOAT)
        for n in range(4):
            g[n] = FLOAT(0)
        image = image_of(images, r)
        if 0 <= image < N:
            sx, sy, offset = value(scale_x), value(scale_y), value(out_offset)
            of_y, of_x = axes_of(rois, r, rows, columns, least, most, sx, sy, value(in_offset))
            n_y, n_x = of_y[2], of_x[2]
            e = int64(thread)
            while e < C * rows * columns:
                plane = e // columns
                ox = e - plane * columns
                c = plane // rows
                oy = plane - c * rows
                load(d, D + r * d_r + c * d_c + oy * d_y + ox * d_x)
                y0, y1, x0, x1 = oy * n_y, oy * n_y + n_y, ox * n_x, ox * n_x + n_x
                factor = FLOAT(1) / FLOAT(n_y * n_x)
                if MAXIMUM:
                    load_best(sample, 0, best + (r * (C * rows * columns) + e) * 8)
                    y0, x0, factor = int64(sample[0]), int64(sample[1]), FLOAT(1)
                    y1, x1 = y0 + (1 if y0 >= 0 else 0), x0 + 1
                for ky in range(y0, y1):
                    in_y, u0, u1, fy = around(at(ky, of_y[0], of_y[1], of_y[3], offset), H)
                    for kx in range(x0, x1):
                        in_x, v0, v1, fx = around(at(kx, of_x[0], of_x[1], of_x[3], offset), W)
                        if in_y and in_x:
                            a, b, p, q = corners_of(X + image * x_n + c * x_c, u0, u1, v0, v1, x_y, x_x)
                            gx = factor * d[0] * sx * ((FLOAT(1) - fy) * (b - a) + fy * (q - p))
                            gy = factor * d[0] * sy * ((FLOAT(1) - fx) * (p - a) + fx * (q - b))
                            tx, ty = FLOAT(0), FLOAT(0)
                            if of_x[3] != 0:
                                tx = (FLOAT(kx) - offset) / FLOAT(of_x[3])
                            if of_y[3] != 0:
                                ty = (FLOAT(ky) - offset) / FLOAT(of_y[3])
                            g[0] += gx * (FLOAT(1) - tx)
                            g[1] += gy * (FLOAT(1) - ty)
                            g[2] += gx * tx
                            g[3] += gy * ty
                e += BLOCK
        for n in range(4):
            shared[thread] = g[n]
            half = BLOCK // 2
            while half > 0:
                wait_for_block()
                if thread < half:
                    shared[thread] += shared[thread + half]
                half //= 2
            if thread == 0:
                d[0] = shared[0]
                store(result + (r * 4 + n) * ROI, d)
            wait_for_block()

    return kernel
