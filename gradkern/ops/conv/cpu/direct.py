"""Conv and ConvGrad without a column matrix: for depthwise convolutions, whose arithmetic is too little to pay for one.

A plane (the spatial axes of one image and channel) is laid flat with its padding: position p. dY's plane is spread
over the same positions, output o at o*strides, zeros between. Then tap k is a distance, flat(k*dilations):

    Y[p] = B[m] + sum over c, k of  W[m, c, k] * X[p + distance[k]]        kept where p is an output
    dX[p] = sum over m, k of  W[m, c, k] * spread[p - distance[k]]
    dW[m, c, k] = sum over p of  X[p] * spread[p - distance[k]]

for any stride, dilation and padding: long adjacent loops, however short the rows. Blocks of p keep to the caches: parts
of a large plane, or several images' small planes one behind another. Behind a plane's last output there are as
many zeros as the largest distance, so no tap reaches from one into the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import ceil, prod
from typing import Any

import numba
import numpy as np
from numba import njit, types

from gradkern.call import Call, Refusal
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, kernel
from gradkern.cpu.element_types import arithmetic, copy_line, kernel_dtype, load, real, store, zeros
from gradkern.cpu.threads import take
from gradkern.ops.conv.cpu.exact import sum_products
from gradkern.ops.conv.cpu.lines import contiguous, spacing_of
from gradkern.ops.conv.cpu.microkernel import dot_1, dot_3, dot_9, lanes
from gradkern.ops.conv.geometry import Geometry

BLOCK = 2048  # positions: three buffers of float32 fill three quarters of a 32 KiB L1 cache
_WHOLE = (
    1 << 16
)  # positions of the largest plane that is a block: parts of 112x112 or 224x224 take 1.2 to 1.7 times as long
_SHORT_LINE = 40  # elements: where lines are longer, a plain loop is as fast
_CALLED: Any = {**INLINE, "forceinline": False}  # once for a block: kernels are compiled in three quarters of the time
TASKS = 16  # planes of fewer channels than this are shared out by images too


@kernel
def direct(
    queue: Any,
    dY: Any,
    X: Any,
    W: Any,
    B: Any,
    dX: Any,
    shares: Any,
    padded: Any,
    strides: Any,
    begins: Any,
    taps: Any,
    distances: Any,
    block: int,
    together: int,
    lanes: int,
) -> None:
    """A task is a channel and a share of the images: it writes their dX, and shares[share] gets their part of dW.

    together: whole planes, of so many images, in a block; 0: a plane in blocks. lanes: of a vector.
    """
    filters, channels = W.shape[0] // (X.shape[1] // W.shape[1]), W.shape[1]
    total = padded[0] * padded[1] * padded[2]
    halo = distances[-1]
    before = 0 if together else halo  # positions of dY before a block that taps reach
    step = spacing_of(W)[4]
    x, result, spread = zeros(X, block + lanes), zeros(X, block), zeros(X, block + halo + lanes)
    weights, sums, backwards = zeros(X, len(distances)), zeros(X, 9 + lanes), halo - distances
    task = take(queue)
    while task >= 0:
        share, channel = divmod(task, X.shape[1])
        group, c = divmod(channel, channels)
        shares[share, group * filters : (group + 1) * filters, c] = 0
        first, last = X.shape[0] * share // shares.shape[0], X.shape[0] * (share + 1) // shares.shape[0]
        for image in range(first, last, max(together, 1)):
            images = max(1, min(together, last - image))
            for start in range(0, total, block):
                size = min(block, total - start)  # positions of each image
                count = images * size
                if shares.size:
                    _lay(X, (image, images, channel), x, start, size, together, padded, (1, 1, 1), begins)
                    x[count : count + lanes] = 0
                result[:count] = B[channel] if B.size else real(X, 0)
                for m in range(group * filters, (group + 1) * filters):
                    where, at, seen = (image, images, m), start - before, size + before
                    _lay(dY, where, spread[halo - before :], at, seen, together, padded, strides, (0, 0, 0))
                    for tap in range(len(distances)):
                        weights[tap] = load(contiguous(W[m, c, taps[tap, 0], taps[tap, 1]]), taps[tap, 2] * step)
                    if dX.size:
                        _add_taps(spread, backwards, weights, result, count)
                    if shares.size:
                        _add_dots(spread, backwards, x, shares[share, m, c], -(-count // lanes) * lanes, sums)
                if dX.size:
                    _bring_home(result, dX, (image, images, channel), start, size, together, padded, (1, 1, 1), begins)
        task = take(queue)


@kernel
def direct_forward(
    queue: Any,
    X: Any,
    W: Any,
    B: Any,
    Y: Any,
    shares: int,
    padded: Any,
    strides: Any,
    begins: Any,
    taps: Any,
    distances: Any,
    block: int,
    together: int,
) -> None:
    """A task is a filter and one of `shares` shares of the images; together: as in `direct`."""
    channels, filters = W.shape[1], W.shape[0] // max(X.shape[1] // max(W.shape[1], 1), 1)
    total = padded[0] * padded[1] * padded[2]
    halo = distances[-1]
    behind = 0 if together else halo  # positions of X behind a block that taps reach
    step = spacing_of(W)[4]
    x, result, weights = zeros(X, block + halo), zeros(X, block), zeros(X, len(distances))
    task = take(queue)
    while task >= 0:
        share, m = divmod(task, W.shape[0])
        first, last = X.shape[0] * share // shares, X.shape[0] * (share + 1) // shares
        for image in range(first, last, max(together, 1)):
            images = max(1, min(together, last - image))
            for start in range(0, total, block):
                size = min(block, total - start)
                count = images * size
                result[:count] = B[m] if B.size else real(X, 0)
                for c in range(channels):
                    channel = m // filters * channels + c
                    _lay(X, (image, images, channel), x, start, size + behind, together, padded, (1, 1, 1), begins)
                    for tap in range(len(distances)):
                        weights[tap] = load(contiguous(W[m, c, taps[tap, 0], taps[tap, 1]]), taps[tap, 2] * step)
                    _add_taps(x, distances, weights, result, count)
                _bring_home(result, Y, (image, images, m), start, size, together, padded, strides, (0, 0, 0))
        task = take(queue)


@njit(**INLINE)
def _add_taps(seen: Any, begins: Any, weights: Any, result: Any, count: int) -> None:
    """result[p] += sum over taps of weight * seen[begin + p]: nine or three taps for each time that result moves."""
    nines = len(weights) // 9 * 9
    for tap in range(0, nines, 9):
        a, b, c = seen[begins[tap] :], seen[begins[tap + 1] :], seen[begins[tap + 2] :]
        d, e, f = seen[begins[tap + 3] :], seen[begins[tap + 4] :], seen[begins[tap + 5] :]
        g, h, i = seen[begins[tap + 6] :], seen[begins[tap + 7] :], seen[begins[tap + 8] :]
        r, s, t = weights[tap], weights[tap + 1], weights[tap + 2]
        u, v, w = weights[tap + 3], weights[tap + 4], weights[tap + 5]
        x, y, z = weights[tap + 6], weights[tap + 7], weights[tap + 8]
        for p in range(count):
            result[p] += (
                (r * a[p] + s * b[p] + t * c[p]) + (u * d[p] + v * e[p] + w * f[p]) + (x * g[p] + y * h[p] + z * i[p])
            )
    threes = nines + (len(weights) - nines) // 3 * 3
    for tap in range(nines, threes, 3):
        a, b, c = seen[begins[tap] :], seen[begins[tap + 1] :], seen[begins[tap + 2] :]
        u, v, w = weights[tap], weights[tap + 1], weights[tap + 2]
        for p in range(count):
            result[p] += u * a[p] + v * b[p] + w * c[p]
    for tap in range(threes, len(weights)):
        a, u = seen[begins[tap] :], weights[tap]
        for p in range(count):
            result[p] += u * a[p]


@njit(**INLINE)
def _add_dots(seen: Any, begins: Any, x: Any, sums: Any, count: int, found: Any) -> None:
    """sums[tap] += sum over p of x[p] * seen[begin + p], for nine or three taps at once; count: whole vectors."""
    nines = len(begins) // 9 * 9
    threes = nines + (len(begins) - nines) // 3 * 3
    for tap in range(0, nines, 9):
        dot_9(x, 0, 0, seen, 0, begins, tap, count, found)
        for n in range(9):
            sums[tap + n] += found[n]
    for tap in range(nines, threes, 3):
        dot_3(x, 0, 0, seen, 0, begins, tap, count, found)
        for n in range(3):
            sums[tap + n] += found[n]
    for tap in range(threes, len(begins)):
        dot_1(x, 0, 0, seen, 0, begins, tap, count, found)
        sums[tap] += found[0]


@njit(**INLINE)
def _meet(low: int, high: int, stride: int, size: int) -> tuple[int, int]:
    """The i of 0 .. size-1 with low <= i*stride <= high, from the first to behind the last. Few need a division."""
    begin = 0 if low <= 0 else -(-low // stride)
    end = size if (size - 1) * stride <= high else high // stride + 1
    return begin, end


@njit(**_CALLED)
def _lay(
    source: Any, images: Any, target: Any, start: int, size: int, together: int, padded: Any, strides: Any, begins: Any
) -> None:
    """target[n * size + p - start] = source[n, i], where i is at p = i*strides + begins; zero between and around, as it
    stays under whole planes.

    images: (first, how many, channel), of each of them the `size` positions from `start` on; several have whole planes
    """
    if together:
        _move_all(source, images, target, size, padded, strides, begins, None)
    else:
        target[:size] = 0
        _move(source[images[0], images[2]], target, start, size, padded, strides, begins, None)


@njit(**_CALLED)
def _bring_home(
    result: Any, target: Any, images: Any, start: int, size: int, together: int, padded: Any, strides: Any, begins: Any
) -> None:
    """target[n, i] = result[n * size + p - start], where i is at p = i*strides + begins."""
    if together:
        _move_all(target, images, result, size, padded, strides, begins, True)
    else:
        _move(target[images[0], images[2]], result, start, size, padded, strides, begins, True)


@njit(**INLINE)
def _move(plane: Any, flat: Any, start: int, count: int, padded: Any, strides: Any, begins: Any, home: Any) -> None:
    """Between plane[i] and flat[p - start], line by line; home: to the plane, None: from there."""
    step = plane.strides[2] // plane.itemsize
    first, last = max(start // padded[2], 0), (start + count - 1) // padded[2]
    for at0 in range(first // padded[1], last // padded[1] + 1):
        i0 = (at0 - begins[0]) // strides[0]
        if i0 * strides[0] != at0 - begins[0] or i0 < 0 or i0 >= plane.shape[0]:
            continue
        line = at0 * padded[1]
        low, high = max(first - line, 0), min(last - line, padded[1] - 1)
        begin1, end1 = _meet(low - begins[1], high - begins[1], strides[1], plane.shape[1])
        for i1 in range(begin1, end1):
            base = (line + i1 * strides[1] + begins[1]) * padded[2] + begins[2] - start
            begin, end = _meet(-base, count - 1 - base, strides[2], plane.shape[2])
            memory = contiguous(plane[i0, i1])
            if step == 1 and strides[2] == 1:
                _move_line(memory, 0, 1, flat, base, 1, begin, end, home)
            else:
                _move_line(memory, 0, step, flat, base, strides[2], begin, end, home)


@njit(**INLINE)
def _move_all(
    planes: Any, images: Any, flat: Any, total: int, padded: Any, strides: Any, begins: Any, home: Any
) -> None:
    """Between planes[n, i] and flat[n * total + p], line by line; home: to the planes, None: from there."""
    spacing, (first, count, channel), size = spacing_of(planes), images, planes.shape[4]
    memory = contiguous(planes[first, channel, 0, 0])
    for n in range(count):
        for i0 in range(planes.shape[2]):
            for i1 in range(planes.shape[3]):
                at = n * spacing[0] + i0 * spacing[2] + i1 * spacing[3]
                line = (i0 * strides[0] + begins[0]) * padded[1] + i1 * strides[1] + begins[1]
                base = n * total + line * padded[2] + begins[2]
                if spacing[4] == 1 and strides[2] == 1 and size <= _SHORT_LINE:
                    _copy_line(memory, at, flat, base, size, home)
                elif spacing[4] == 1 and strides[2] == 1:
                    _move_line(memory, at, 1, flat, base, 1, 0, size, home)
                else:
                    _move_line(memory, at, spacing[4], flat, base, strides[2], 0, size, home)


@njit(**INLINE)
def _copy_line(memory: Any, at: int, flat: Any, base: int, count: int, home: Any) -> None:
    if home is not None:
        copy_line(flat, base, memory, at, count)
    else:
        copy_line(memory, at, flat, base, count)


@njit(**INLINE)
def _move_line(
    memory: Any, at: int, step: int, flat: Any, base: int, stride: int, begin: int, end: int, home: Any
) -> None:
    for i in range(begin, end):
        if home is not None:
            store(memory, at + i * step, load(flat, base + i * stride))
        else:
            store(flat, base + i * stride, load(memory, at + i * step))


class Flat:
    """A plane with its padding: its sizes, the filter's taps, what distances they are, and positions of a block."""

    def __init__(self, geometry: Geometry, whole: int) -> None:
        """whole: the most positions of a plane that is not divided."""
        extents = [
            (out - 1) * stride + (size - 1) * dilation + 1
            for out, stride, size, dilation in zip(
                geometry.out, geometry.strides, geometry.kernel, geometry.dilations, strict=True
            )
        ]
        ends = [begin + size for begin, size in zip(geometry.pads_begin, geometry.spatial, strict=True)]
        self.padded = tuple(max(extent, end) for extent, end in zip(extents, ends, strict=True))
        self.taps = np.array(list(product(*(range(size) for size in geometry.kernel))), np.int64)
        self.distances = (self.taps * geometry.dilations) @ np.array(
            (self.padded[1] * self.padded[2], self.padded[2], 1)
        )
        self.halo = int(self.distances[-1])
        total = prod(self.padded)
        self.block = max(1, min(total, max(BLOCK, 4 * self.halo)))
        self.together = 0  # whole planes of so many images in a block
        if 0 < total <= whole:
            self.together = max(1, min(geometry.images, BLOCK // total))
            self.block = self.together * total


class Direct:
    """Computes Y in one pass over X, or the wanted ones of dX and dW in one pass over dY and X."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        dtype, self._geometry, self._forward = call.inputs["W"].dtype, geometry, "Y" in call.outputs
        self._dtype, self._lanes = dtype, lanes(arithmetic(dtype))
        filters, channels = geometry.group * geometry.filters, geometry.group * geometry.channels
        shares = max(1, min(geometry.images, ceil(TASKS / max(filters if self._forward else channels, 1))))
        self._tasks = shares * (filters if self._forward else channels)
        if self._forward and not prod(geometry.out) * geometry.images:
            self._tasks = 0
        self._shares = shares, filters if "dW" in call.outputs else 0, geometry.channels, geometry.taps
        self._no_dX = np.empty((0,) * 5, kernel_dtype(dtype))
        # buffers of a block's positions; the arguments that are arrays; and behind these how planes are laid flat
        buffers, nbytes = (2, 0) if self._forward else (3, prod(self._shares) * 8)
        for whole in (_WHOLE, 2 * BLOCK):  # parts take less memory
            flat = Flat(geometry, whole)
            positions = buffers * (flat.block + self._lanes) + flat.halo
            self.scratch = nbytes + threads.threads() * positions * arithmetic(dtype).itemsize
            if self.scratch <= limit:
                break
        else:
            raise Refusal(f"needs {self.scratch} bytes of scratch; the policy's workspace_limit is {limit}")
        sizes = flat.padded, geometry.strides, geometry.pads_begin
        self._flat = (*sizes, flat.taps, flat.distances, flat.block, flat.together)
        seen, bias = numba.from_dtype(kernel_dtype(dtype)), numba.from_dtype(arithmetic(dtype))
        source, target = types.Array(seen, 5, "A", readonly=True), types.Array(seen, 5, "A")
        bias = types.Array(bias, 1, "C", readonly=True)
        table, vector = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")
        more = [*[types.UniTuple(types.int64, 3)] * 3, table, vector, types.int64, types.int64]
        if self._forward:
            self._kernel = direct_forward(threads.QUEUE, source, source, bias, target, types.int64, *more)
        else:
            shares_type = types.Array(types.float64, 4, "C")
            self._kernel = direct(threads.QUEUE, source, source, source, bias, target, shares_type, *more, types.int64)

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> None:
        W, B = arrays["W"], arrays["B"]
        if self._forward:
            X, Y = arrays["X"], arrays["Y"]
            threads.run(self._kernel, self._tasks, X.nbytes + Y.nbytes, X, W, B, Y, self._shares[0], *self._flat)
            return
        dY, dX, shares = arrays["dY"], arrays.get("dX", self._no_dX), np.empty(self._shares)
        data = arrays.get("X", dX)  # of dX alone only its shape counts
        threads.run(
            self._kernel, self._tasks, dY.nbytes + 2 * data.nbytes, dY, data, W, B, dX, shares, *self._flat, self._lanes
        )
        if "dW" not in arrays:
            return
        total = shares.sum(0)
        if not np.isfinite(total).all():  # a zero of the spread may have met an infinity of X
            sum_products(self._geometry, dY.view(self._dtype), data.view(self._dtype), total)
        arrays["dW"][...] = total.reshape(arrays["dW"].shape)
