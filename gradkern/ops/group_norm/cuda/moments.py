"""Pairs of numbers of some elements, and how those of two parts are combined.

gradient  the sum of D, and of D xh
forward   the mean and the sum of squared deviations from it (T. F. Chan, G. H. Golub and R. J. LeVeque, Updating
          formulae and a pairwise algorithm for computing sample variances, 1979)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.cuda import float32, float64, int32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function


def combining(gradient: bool, compute: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The device functions combine(count, first, second, more, other, another), of two parts' counts and pairs, and
    over_lanes(count, first, second, lanes), of the lanes of a warp, for the first of them. Both return three numbers.
    """
    FLOAT = float64 if compute == "float64" else float32
    shuffle = i.shuffle_xor_double if compute == "float64" else i.shuffle_xor

    @device_function
    def share_of(part: Any, whole: Any) -> Any:
        if compute == "float64":
            return part / whole
        return part * i.reciprocal_approximate(whole)

    @device_function
    def combine(count: Any, first: Any, second: Any, more: Any, other: Any, another: Any) -> Any:
        total = count + more
        if gradient:
            return total, first + other, second + another
        share = share_of(more, max(total, FLOAT(1)))
        apart = other - first
        return total, first + apart * share, second + another + apart * apart * (count * share)

    @device_function
    def over_lanes(count: Any, first: Any, second: Any, lanes: int) -> Any:
        distance = int32(lanes // 2)
        while distance > 0:
            more, other, another = shuffle(count, distance), shuffle(first, distance), shuffle(second, distance)
            count, first, second = combine(count, first, second, more, other, another)
            distance = int32(distance // 2)
        return count, first, second

    return combine, over_lanes
