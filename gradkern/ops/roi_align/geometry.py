"""Where samples are and what they weigh, for compilers of both providers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Geometry(NamedTuple):
    """Compiled functions.

    axis     (v1, v2, scale, outputs, least, most, offset) -> start, size, n, divisor: of a region along an axis
    at       (sample, start, size, divisor, offset) -> its coordinate
    around   (coordinate, extent) -> whether it counts, the elements before and behind it, the part of the latter
    """

    axis: Any
    at: Any
    around: Any


def geometry(jit: Callable[[Any], Any], FLOAT: Any, INT: Any, nearest: bool, corners: bool) -> Geometry:
    LESS = 1 if corners else 0

    @jit
    def axis(v1: Any, v2: Any, scale: Any, outputs: Any, least: Any, most: Any, offset: Any) -> Any:
        start, size = v1 * scale, v2 * scale - v1 * scale
        cells = math.ceil(abs(size) / FLOAT(outputs))
        n = INT(least)
        if cells > FLOAT(least):
            n = INT(most)
            if cells < FLOAT(most):
                n = INT(cells)
        return start - offset, size, n, n * INT(outputs) - INT(LESS)

    @jit
    def at(sample: Any, start: Any, size: Any, divisor: Any, offset: Any) -> Any:
        if divisor == 0:
            return start
        return (FLOAT(sample) - offset) * size / FLOAT(divisor) + start

    @jit
    def around(coordinate: Any, extent: Any) -> Any:
        last = FLOAT(extent) - FLOAT(1)
        counts = coordinate >= -FLOAT(1) and coordinate <= FLOAT(extent)
        v = FLOAT(0)
        if counts:
            v = min(max(coordinate, FLOAT(0)), last)
        if nearest:
            low = INT(math.ceil(v - FLOAT(0.5)))
            return counts, low, low, FLOAT(0)
        low = INT(math.floor(v))
        return counts, low, INT(math.ceil(v)), v - FLOAT(low)

    return Geometry(axis, at, around)
