"""dW by its own formula, where the sums of a faster kernel are not finite.

Those kernels also multiply elements of X by zeros that stand between dY's elements and behind them, and a zero times an
infinity is a NaN that the formula does not have. Here only the formula's products are computed:

    dW[m, c, k] = sum over images n and outputs o of  dY[n, m, o] * X[n, c, o*strides + k*dilations - pads_begin]
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.cpu import threads
from gradkern.cpu.compile import kernel
from gradkern.cpu.element_types import load, real
from gradkern.cpu.threads import take
from gradkern.ops.conv.cpu.lines import contiguous, spacing_of
from gradkern.ops.conv.geometry import Geometry

__all__ = ["sum_products"]

_TABLE = types.Array(types.int64, 2, "C")


@kernel
def products(queue: Any, dY: Any, X: Any, steps: Any, offsets0: Any, offsets1: Any, offsets2: Any, dW: Any) -> None:
    """dW[m, c, tap] where it is not finite; offsets: of the taps along each axis, and the outputs whose X exists, see
    Window. Elsewhere X is zero, the padding. A task is a filter and one of its channels.
    """
    channels, taps1, taps2 = dW.shape[1], offsets1.shape[0], offsets2.shape[0]
    filters = dW.shape[0] // (X.shape[1] // channels)
    of_dY, of_X, size = spacing_of(dY), spacing_of(X), dY.shape[4]
    step, padding = steps[2] * of_X[4], real(X, 0)
    task = take(queue)
    while task >= 0:
        m, c = divmod(task, channels)
        upstream, data = contiguous(dY[0, m, 0, 0]), contiguous(X[0, m // filters * channels + c, 0, 0])
        for tap in range(dW.shape[2]):
            if np.isfinite(dW[m, c, tap]):
                continue
            t0, t1, t2 = tap // (taps1 * taps2), tap // taps2 % taps1, tap % taps2
            total = 0.0
            for image in range(X.shape[0]):
                for q0 in range(dY.shape[2]):
                    for q1 in range(dY.shape[3]):
                        begin = end = size
                        if offsets0[t0, 1] <= q0 < offsets0[t0, 2] and offsets1[t1, 1] <= q1 < offsets1[t1, 2]:
                            begin, end = offsets2[t2, 1], max(offsets2[t2, 1], offsets2[t2, 2])
                        i0, i1 = steps[0] * q0 + offsets0[t0, 0], steps[1] * q1 + offsets1[t1, 0]
                        at = image * of_dY[0] + q0 * of_dY[2] + q1 * of_dY[3]
                        place = image * of_X[0] + i0 * of_X[2] + i1 * of_X[3] + offsets2[t2, 0] * of_X[4]
                        for q2 in range(begin):
                            total += load(upstream, at + q2 * of_dY[4]) * padding
                        for q2 in range(begin, end):
                            total += load(upstream, at + q2 * of_dY[4]) * load(data, place + q2 * step)
                        for q2 in range(end, size):
                            total += load(upstream, at + q2 * of_dY[4]) * padding
            dW[m, c, tap] = total
        task = take(queue)


def sum_products(geometry: Geometry, dY: np.ndarray, X: np.ndarray, dW: np.ndarray) -> None:
    """Compute the elements of dW, [filter, channel, tap] of float32 or float64, that are not finite."""
    window = geometry.weight_window()
    source = types.Array(numba.from_dtype(X.dtype), 5, "A", readonly=True)
    target = types.Array(numba.from_dtype(dW.dtype), 3, "C")
    steps = types.UniTuple(types.int64, 3)
    compiled = products(threads.QUEUE, source, source, steps, _TABLE, _TABLE, _TABLE, target)
    tasks = dW.shape[0] * dW.shape[1]
    threads.run(compiled, tasks, tasks * dY.nbytes, dY, X, window.steps, *window.offsets, dW)
