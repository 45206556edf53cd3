"""Conv without a column matrix: for depthwise convolutions. Planes are flat, with their padding, see `direct`:

    Y[o] = B[m] + sum over c, k of  W[m, c, k] * X[o*strides + distance[k]]

at every position, and keeps those at o*strides.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call, Refusal
from gradkern.cpu import threads
from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import arithmetic, kernel_dtype, load, real, zeros
from gradkern.cpu.threads import take
from gradkern.ops.conv.cpu.direct import TASKS, Flat, add_taps, bring_all_home, bring_home, fill, lay
from gradkern.ops.conv.cpu.lines import contiguous, spacing_of
from gradkern.ops.conv.geometry import Geometry

__all__ = ["DirectForward"]


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
    step = spacing_of(W)[4]
    x, result, weights = zeros(X, block + halo), zeros(X, block), zeros(X, len(distances))
    task = take(queue)
    while task >= 0:
        share, m = divmod(task, W.shape[0])
        first, last = X.shape[0] * share // shares, X.shape[0] * (share + 1) // shares
        for image in range(first, last, max(together, 1)):
            images = min(together, last - image)
            for start in range(0, total, block):
                count = images * total if together else min(block, total - start)
                result[:count] = B[m] if B.size else real(X, 0)
                for c in range(channels):
                    channel = m // filters * channels + c
                    if together:
                        lay(X, (image, images, channel), x, total, padded, (1, 1, 1), begins)
                    else:
                        fill(X[image, channel], x, start, count + halo, padded, (1, 1, 1), begins)
                    for tap in range(len(distances)):
                        weights[tap] = load(contiguous(W[m, c, taps[tap, 0], taps[tap, 1]]), taps[tap, 2] * step)
                    add_taps(x, distances, weights, result, count)
                if together:
                    bring_all_home(result, Y, (image, images, m), total, padded, strides, (0, 0, 0))
                else:
                    bring_home(result, Y[image, m], start, count, padded, strides, (0, 0, 0))
        task = take(queue)


class DirectForward:
    """Computes Y in one pass over X."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        dtype, flat, filters = call.inputs["X"].dtype, Flat(geometry), geometry.group * geometry.filters
        self._shares = max(1, min(geometry.images, ceil(TASKS / max(filters, 1))))
        self._tasks = self._shares * filters if prod(geometry.out) * geometry.images else 0
        sizes = flat.padded, geometry.strides, geometry.pads_begin
        self._geometry = (self._shares, *sizes, flat.taps, flat.distances, flat.block, flat.together)
        self.scratch = threads.threads() * (2 * flat.block + flat.halo) * arithmetic(dtype).itemsize
        if self.scratch > limit:
            raise Refusal(f"needs {self.scratch} bytes of scratch; the policy's workspace_limit is {limit}")
        seen = numba.from_dtype(kernel_dtype(dtype))
        source, target = types.Array(seen, 5, "A", readonly=True), types.Array(seen, 5, "A")
        bias = types.Array(numba.from_dtype(arithmetic(dtype)), 1, "C", readonly=True)
        table, vector = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")
        triple, integer = types.UniTuple(types.int64, 3), types.int64
        self._kernel = direct_forward(
            threads.QUEUE, source, source, bias, target, integer, *[triple] * 3, table, vector, integer, integer
        )

    def __call__(self, X: np.ndarray, W: np.ndarray, B: np.ndarray, Y: np.ndarray) -> None:
        threads.run(self._kernel, self._tasks, X.nbytes + Y.nbytes, X, W, B, Y, *self._geometry)
