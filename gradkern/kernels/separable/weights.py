"""Of an axis map, as device functions: the outputs that an input may be a term of, and its weight in each.

Ranges of outputs may be a little too wide; weights there are 0. a: the AXIS numbers of an axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.cuda import float32, float64, int32, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.separable.axis_map import REACH
from gradkern.kernels.separable.config import Kind


def weights(kind: Kind, compute: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """first(x, a), last(x, a) and weight(x, o, a)."""
    match kind.name:
        case "windows":
            return _windows(kind, compute)[:3]
        case "adaptive":
            return _adaptive(compute)
        case _:
            return (*_range(kind, compute), _resampling(kind, compute))


def share_of(kind: Kind, compute: str) -> Callable[..., Any]:
    """share(o, a): what each element of an averaged window has of it."""
    return _windows(kind, compute)[3]


def _windows(kind: Kind, compute: str) -> tuple[Callable[..., Any], ...]:
    WIDE, DILATED = compute == "float64", kind.dilated
    FLOAT = float64 if WIDE else float32

    @device_function
    def first(x: int, a: Any) -> int:
        t = int32(x + int32(a[7]) - (int32(a[2]) - 1) * int32(a[6]))
        return i.divided(int32(max(t, 0) + int32(a[3]) - 1), int32(a[4]), int32(a[5]))

    @device_function
    def last(x: int, a: Any) -> int:
        return int32(min(i.divided(int32(x + int32(a[7])), int32(a[4]), int32(a[5])), int32(a[1]) - 1))

    @device_function
    def taps(distance: int, a: Any) -> int:
        """How many elements of a window are less than this far from its first; distance: 0 or more."""
        if DILATED:
            return int32(i.quotient(int32(distance + int32(a[6]) - 1), int32(a[6])))
        return distance

    @device_function
    def share(o: int, a: Any) -> Any:
        """Of each element of a window; 0 where it has none."""
        begin = int32(o * int32(a[3]) - int32(a[7]))
        stop, missing = (int32(a[8]), int32(0)) if int32(a[8]) >= 0 else (int32(a[0]), taps(int32(max(-begin, 0)), a))
        count = int32(min(int32(a[2]), taps(int32(max(stop - begin, 0)), a)) - missing)
        count = int32(a[9]) if int32(a[9]) != 0 else count
        if WIDE:
            result = FLOAT(1) / FLOAT(max(count, 1))
        else:
            number = FLOAT(count)
            near = i.reciprocal_approximate(number)
            result = near + near * (FLOAT(1) - near * number)
        return FLOAT(0) if count == 0 else result

    @device_function
    def weight(x: int, o: int, a: Any) -> Any:
        t = int32(x - int32(o * int32(a[3]) - int32(a[7])))
        inside = t >= 0 and t <= int32((int32(a[2]) - 1) * int32(a[6]))
        if DILATED and inside:
            inside = int32(i.quotient(t, int32(a[6])) * int32(a[6])) == t
        result = FLOAT(0)
        if inside:
            result = share(o, a)
        return result

    return first, last, weight, share


def _adaptive(compute: str) -> tuple[Callable[..., Any], ...]:
    FLOAT = float64 if compute == "float64" else float32

    @device_function
    def first(x: int, a: Any) -> int:
        return int32(int64(x) * a[1] // a[0])

    @device_function
    def last(x: int, a: Any) -> int:
        return int32(min(((int64(x) + 1) * a[1] + a[0] - 1) // a[0], a[1]) - 1)

    @device_function
    def weight(x: int, o: int, a: Any) -> Any:
        begin = int64(o) * a[0] // a[1]
        end = ((int64(o) + 1) * a[0] + a[1] - 1) // a[1]
        result = FLOAT(0)
        if x >= begin and x < end:
            result = FLOAT(1) / FLOAT(end - begin)
        return result

    return first, last, weight


def _range(kind: Kind, compute: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Of a resampling: the outputs whose coordinate is so far from x, below it and above; in float32, a little wider,
    most of a nearest element's, whose weight is 1 on the edge.
    """
    rounded = {"floor": (0.0, 1.0), "ceil": (1.0, 0.0)}.get(kind.rounding, (0.5, 0.5))
    below, above = rounded if kind.name == "nearest" else (REACH[kind.name],) * 2
    BELOW, ABOVE, NARROWED = float32(below), float32(above), kind.narrowed
    MARGIN = float32(0.05 if kind.name == "nearest" else 0.01)
    bits, of_compute = i.float_of_bits("float32"), i.float_of_bits(compute)

    @device_function
    def reach(distance: Any, a: Any) -> Any:
        if NARROWED:
            distance = distance / float32(of_compute(a[9]))
        return distance

    @device_function
    def edge(x: Any, a: Any) -> Any:
        """The output, a number between two, whose coordinate is x."""
        return (x - bits(a[7])) * bits(a[8]) - bits(a[6])

    @device_function
    def limited(o: Any, a: Any) -> int:
        return int32(min(int32(min(max(o, float32(0)), float32(a[1] - 1))), int32(a[1]) - 1))

    @device_function
    def first(x: int, a: Any) -> int:
        inverse = bits(a[8])
        near = int32(0) if inverse >= float32(0) else int32(a[0] - 1)
        found = int32(0)
        if x != near and inverse != float32(0):
            o = min(edge(float32(x) - reach(BELOW, a), a), edge(float32(x) + reach(ABOVE, a), a))
            found = limited(math.ceil(o - MARGIN - abs(o) * float32(1e-6)), a)
        return found

    @device_function
    def last(x: int, a: Any) -> int:
        inverse = bits(a[8])
        far = int32(a[0] - 1) if inverse >= float32(0) else int32(0)
        found = int32(a[1] - 1)
        if x != far and inverse != float32(0):
            o = max(edge(float32(x) - reach(BELOW, a), a), edge(float32(x) + reach(ABOVE, a), a))
            found = limited(math.floor(o + MARGIN + abs(o) * float32(1e-6)), a)
        return found

    return first, last


def _resampling(kind: Kind, compute: str) -> Callable[..., Any]:
    FLOAT = float64 if compute == "float64" else float32
    NEAREST, LINEAR, ROUNDING = kind.name == "nearest", kind.name == "linear", kind.rounding
    DIVIDED, EXCLUDED, BOUNDED = kind.divided, kind.excluded, kind.bounded
    PLACE = float32 if NEAREST else FLOAT
    NUMBER = float if compute == "float64" else float32
    A, ONE, HALF = NUMBER(kind.cubic), NUMBER(1), float32(0.5)
    A2, A3, A4 = NUMBER(kind.cubic + 2), NUMBER(kind.cubic + 3), NUMBER(4 * kind.cubic)
    A5, A8 = NUMBER(5 * kind.cubic), NUMBER(8 * kind.cubic)
    TAPS, SIDE, NARROWED = 4, NUMBER(REACH.get(kind.name, 1)), kind.narrowed
    PI, THIRD, TERMS = NUMBER(math.pi), NUMBER(1 / 3), 10 if compute == "float64" else 6
    bits = i.float_of_bits("float32" if NEAREST else compute)

    @device_function
    def coordinate(o: int, a: Any) -> Any:
        place = (PLACE(o) + bits(a[2])) * bits(a[3])
        if DIVIDED:
            place = place / bits(a[4])
        return place + bits(a[5])

    @device_function
    def inside(place: int, a: Any) -> int:
        return int32(min(max(place, int32(0)), int32(a[0]) - 1))

    @device_function
    def cubic(d: Any) -> Any:
        """Of an element at this distance, 0 to 2."""
        result = ((A * d - A5) * d + A8) * d - A4
        if d <= ONE:
            result = (A2 * d - A3) * d * d + ONE
        return result

    @device_function
    def sinc(d: Any) -> Any:
        """sin(pi d) / (pi d) of a distance, by the series of the sine around the nearest whole number."""
        whole = int32(math.floor(d + NUMBER(0.5)))
        rest = d - NUMBER(whole)
        square, result = (PI * rest) * (PI * rest), ONE
        for n in range(TERMS, 0, -1):
            result = ONE - square * result / NUMBER(2 * n * (2 * n + 1))
        if whole != 0:
            result = result * rest / d
        return -result if whole % 2 != 0 else result

    @device_function
    def lanczos(d: Any) -> Any:
        return sinc(d) * sinc(d * THIRD)

    filtered = lanczos if kind.name == "lanczos" else cubic

    @device_function
    def weight(x: int, o: int, a: Any) -> Any:
        at = coordinate(o, a)
        result = FLOAT(0)
        if NEAREST:
            near = math.floor(at)
            if ROUNDING == "ceil":
                near = math.ceil(at)
            elif ROUNDING == "round_prefer_floor":
                near = math.ceil(at - HALF)
            elif ROUNDING == "round_prefer_ceil":
                near = math.floor(at + HALF)
            if inside(int32(near), a) == x:
                result = ONE
        else:
            base = math.floor(at)
            f, place = at - PLACE(base), int32(base)
            if NARROWED:
                narrowing, total = bits(a[9]), FLOAT(0)
                side = int32(math.ceil(SIDE / narrowing))
                for t in range(1 - side, side + 1):
                    tap, d, w = int32(place + t), abs(f - FLOAT(t)) * narrowing, FLOAT(0)
                    if d < SIDE and (not EXCLUDED or (tap >= 0 and tap < int32(a[0]))):
                        w = ONE - d if LINEAR else filtered(d)
                    total += w
                    if inside(tap, a) == x:
                        result += w
                if total != FLOAT(0):
                    result = result / total
            elif LINEAR:
                if inside(place, a) == x:
                    result += ONE - f
                if inside(int32(place + 1), a) == x:
                    result += f
            else:
                total = FLOAT(0)
                for t in range(TAPS):
                    tap = int32(place + t - 1)
                    w = cubic(abs(f - FLOAT(t - 1)))
                    if not EXCLUDED or (tap >= 0 and tap < int32(a[0])):
                        total += w
                        if inside(tap, a) == x:
                            result += w
                if EXCLUDED and total != FLOAT(0):
                    result = result / total
        if BOUNDED and (at < PLACE(0) or at > PLACE(int32(a[0]) - 1)):
            result = FLOAT(0)
        return result

    return weight
