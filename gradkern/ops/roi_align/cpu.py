"""The gradients of ROI align on the CPU: a plane of dX, or a region, is a task."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, Kernel, kernel
from gradkern.cpu.element_types import load, real, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.threads import QUEUE, take
from gradkern.errors import DataError
from gradkern.ops.roi_align.geometry import geometry


@cache
def _kernels(nearest: bool, corners: bool) -> tuple[Kernel, Kernel]:
    axis, at, around = geometry(numba.njit(**INLINE), np.float64, np.int64, nearest, corners)

    @numba.njit(**INLINE)
    def best(X: Any, plane: int, extents: Any, y: Any, x: Any, of_y: Any, of_x: Any, offset: float) -> Any:
        """The sample of the maximum in the cell (y, x): along y and along x, -1 of one outside."""
        height, width = extents
        most, best_y, best_x = 0.0, -1, -1
        for sx in range(x * of_x[2], (x + 1) * of_x[2]):
            in_x, x0, x1, fx = around(at(sx, of_x[0], of_x[1], of_x[3], offset), width)
            for sy in range(y * of_y[2], (y + 1) * of_y[2]):
                in_y, y0, y1, fy = around(at(sy, of_y[0], of_y[1], of_y[3], offset), height)
                value = 0.0
                if in_x and in_y:
                    above = (1 - fx) * load(X, plane + y0 * width + x0) + fx * load(X, plane + y0 * width + x1)
                    below = (1 - fx) * load(X, plane + y1 * width + x0) + fx * load(X, plane + y1 * width + x1)
                    value = (1 - fy) * above + fy * below
                if (sx == x * of_x[2] and sy == y * of_y[2]) or value > most:
                    most = value
                    best_y, best_x = (sy, sx) if in_x and in_y else (-1, -1)
        return best_y, best_x

    def of_image(
        queue: Any, X: Any, D: Any, rois: Any, images: Any, dX: Any, channels: int, extents: Any, outs: Any,
        bounds: Any, scales: Any, offsets: Any, maximum: Any,
    ) -> None:  # fmt: skip
        (height, width), (rows, columns), (least, most) = extents, outs, bounds
        total = np.empty(height * width)
        task = take(queue)
        while task >= 0:
            total[:] = 0
            image, channel = task // channels, task % channels
            for r in range(len(images)):
                if images[r] != image:
                    continue
                of_x = axis(rois[r, 0], rois[r, 2], scales[0], columns, least, most, offsets[0])
                of_y = axis(rois[r, 1], rois[r, 3], scales[1], rows, least, most, offsets[0])
                for y in range(rows):
                    for x in range(columns):
                        d = load(D, ((r * channels + channel) * rows + y) * columns + x) * 1.0
                        ly, hy, lx, hx = y * of_y[2], (y + 1) * of_y[2], x * of_x[2], (x + 1) * of_x[2]
                        if maximum is not None:
                            ly, lx = best(X, task * height * width, extents, y, x, of_y, of_x, offsets[1])
                            hy, hx = ly + (ly >= 0), lx + (lx >= 0)
                        else:
                            d /= of_y[2] * of_x[2]
                        for sy in range(ly, hy):
                            in_y, y0, y1, fy = around(at(sy, of_y[0], of_y[1], of_y[3], offsets[1]), height)
                            for sx in range(lx, hx):
                                in_x, x0, x1, fx = around(at(sx, of_x[0], of_x[1], of_x[3], offsets[1]), width)
                                if in_y and in_x:
                                    total[y0 * width + x0] += d * (1 - fy) * (1 - fx)
                                    total[y0 * width + x1] += d * (1 - fy) * fx
                                    total[y1 * width + x0] += d * fy * (1 - fx)
                                    total[y1 * width + x1] += d * fy * fx
            for n in range(height * width):
                store(dX, task * height * width + n, real(D, total[n]))
            task = take(queue)

    def of_regions(
        queue: Any, X: Any, D: Any, rois: Any, images: Any, found: Any, channels: int, extents: Any, outs: Any,
        bounds: Any, scales: Any, offsets: Any, maximum: Any,
    ) -> None:  # fmt: skip
        (height, width), (rows, columns), (least, most) = extents, outs, bounds
        r = take(queue)
        while r >= 0:
            of_x = axis(rois[r, 0], rois[r, 2], scales[0], columns, least, most, offsets[0])
            of_y = axis(rois[r, 1], rois[r, 3], scales[1], rows, least, most, offsets[0])
            g = np.zeros(4)
            for channel in range(channels):
                plane = (images[r] * channels + channel) * height * width
                for y in range(rows):
                    for x in range(columns):
                        d = load(D, ((r * channels + channel) * rows + y) * columns + x) * 1.0
                        ly, hy, lx, hx = y * of_y[2], (y + 1) * of_y[2], x * of_x[2], (x + 1) * of_x[2]
                        if maximum is not None:
                            ly, lx = best(X, plane, extents, y, x, of_y, of_x, offsets[1])
                            hy, hx = ly + (ly >= 0), lx + (lx >= 0)
                        else:
                            d /= of_y[2] * of_x[2]
                        for sy in range(ly, hy):
                            in_y, y0, y1, fy = around(at(sy, of_y[0], of_y[1], of_y[3], offsets[1]), height)
                            ty = (sy - offsets[1]) / of_y[3] if of_y[3] else 0.0
                            for sx in range(lx, hx):
                                in_x, x0, x1, fx = around(at(sx, of_x[0], of_x[1], of_x[3], offsets[1]), width)
                                tx = (sx - offsets[1]) / of_x[3] if of_x[3] else 0.0
                                if in_y and in_x:
                                    a, b = load(X, plane + y0 * width + x0), load(X, plane + y0 * width + x1)
                                    p, q = load(X, plane + y1 * width + x0), load(X, plane + y1 * width + x1)
                                    gx = d * scales[0] * ((1 - fy) * (b - a) + fy * (q - p))
                                    gy = d * scales[1] * ((1 - fx) * (p - a) + fx * (q - b))
                                    g[0] += gx * (1 - tx)
                                    g[1] += gy * (1 - ty)
                                    g[2] += gx * tx
                                    g[3] += gy * ty
            for n in range(4):
                found[r, n] = g[n]
            r = take(queue)

    for each in (of_image, of_regions):
        each.__qualname__ = f"{each.__name__}_{nearest}_{corners}"  # of the cached file
    return kernel(of_image), kernel(of_regions)


def plan(call: Call) -> FlatPlan:
    given, names, axes = call.attributes, tuple(call.inputs), call.axes
    images, channels, extents, outs = axes["N"], axes["C"], axes["spatial"], axes["out"]
    maximum = True if given["ReductionFunction"] == "MAX" else None
    made = _kernels(given["InterpolationMode"] == "NEAREST_NEIGHBOR", bool(given["AlignRegionsToCorners"]))
    kinds = [argument_type(call, name) for name in ("Input", "InputGradient")]
    kinds += [types.float64[:, ::1], types.int64[::1]]
    pair, numbers = types.UniTuple(types.int64, 2), types.UniTuple(types.float64, 2)
    more = (types.int64, pair, pair, pair, numbers, numbers, types.none if maximum is None else types.boolean)
    results = {"OutputGradient": argument_type(call, "OutputGradient"), "OutputROIGradient": types.float64[:, ::1]}
    compiled = {
        name: each(QUEUE, *kinds, results[name], *more)
        for name, each in zip(results, made, strict=True)
        if name in call.outputs
    }
    bounds = given["MinimumSamplesPerOutput"], given["MaximumSamplesPerOutput"]
    scales = float(given["SpatialScaleX"]), float(given["SpatialScaleY"])
    offsets = float(given["InputPixelOffset"]), float(given["OutputPixelOffset"])
    region = call.inputs["ROI"].dtype
    numbers_of = (channels, extents, outs, bounds, scales, offsets, maximum)

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        arrays = dict(zip(names, read, strict=True))
        rois = arrays["ROI"].view(region).astype(np.float64).reshape(-1, 4)
        index = arrays["BatchIndices"].astype(np.int64)
        wrong = (index < 0) | (index >= images)
        if wrong.any():
            place = int(wrong.argmax())
            raise DataError(
                f"input BatchIndices has {wrong.sum()} numbers out of range, the first {index[place]} at {place}; "
                f"expected 0 to {images - 1}"
            )
        X, D = arrays.get("Input"), arrays["InputGradient"]
        for name, target in zip(results, write, strict=True):
            if name == "OutputGradient" and target is not None:
                threads.run(compiled[name], images * channels, 8 * D.nbytes, X, D, rois, index, target, *numbers_of)
            elif target is not None:
                found = np.zeros(rois.shape)
                threads.run(compiled[name], len(rois), 8 * D.nbytes, X, D, rois, index, found, *numbers_of)
                with np.errstate(over="ignore"):  # what a type cannot hold is infinity in it
                    target[:] = found.astype(region).reshape(-1).view(target.dtype)

    return FlatPlan(call, kernel="regions", outputs=tuple(results), launch=launch)
