"""The numbers of a channel of a sample, for the kernels: device functions that load them, and pairs of numbers of some
elements.

A pair is, of two parts combined,

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
from gradkern.cuda.device_code.numbers import number_access
from gradkern.ops.group_norm.cuda.config import GroupNormConfig


def parameters_of(config: GroupNormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Device functions of a channel c of a sample, with the number nc = n C + c:

    more(sample_scale, nc)                                 1 + s
    gain_and_bias(gamma, beta, sample_scale, sample_shift, c, nc)   gamma (1 + s), beta (1 + s) + t
    """
    arrays, FLOAT = config.arrays, float64 if config.compute == "float64" else float32
    GAMMA, BETA = "gamma" in arrays, "beta" in arrays
    SCALE, SHIFT = "sample_scale" in arrays, "sample_shift" in arrays
    parameter, _ = number_access(config.parameter, config.compute, config.native_bfloat16)
    of_sample, _ = number_access(config.data, config.compute, config.native_bfloat16)

    @device_function
    def more(sample_scale: int, nc: int) -> Any:
        if SCALE:
            return FLOAT(1) + of_sample(sample_scale, nc)
        return FLOAT(1)

    @device_function
    def gain_and_bias(gamma: int, beta: int, sample_scale: int, sample_shift: int, c: int, nc: int) -> Any:
        gain, bias, factor = FLOAT(1), FLOAT(0), more(sample_scale, nc)
        if GAMMA:
            gain = parameter(gamma, c)
        if BETA:
            bias = parameter(beta, c)
        gain, bias = gain * factor, bias * factor
        if SHIFT:
            bias += of_sample(sample_shift, nc)
        return gain, bias

    return more, gain_and_bias


def addends_of(config: GroupNormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Device functions of what is normalized:

    added(skip, bias, c, nc)   what is added to each element of channel c of a sample
    shift(X, skip, bias, n, c, channels, positions)   a number near all of the group that begins with channel c: its
                               first element, before it is rounded
    """
    FLOAT, LINES = float64 if config.compute == "float64" else float32, config.lines
    SUMS, OF_ELEMENTS = config.sums_data, config.skip == "elements"
    BIAS = "bias" in config.arrays
    element, _ = number_access(config.data, config.compute, config.native_bfloat16)

    @device_function
    def added(skip: int, bias: int, c: int, nc: int) -> Any:
        value = FLOAT(0)
        if SUMS:
            if BIAS:
                value = element(bias, c)
            if not OF_ELEMENTS:
                value += element(skip, nc)
        return value

    @device_function
    def shift(X: int, skip: int, bias: int, n: int, c: int, channels: int, positions: int) -> Any:
        at = (n * channels + c) * positions
        if LINES:
            at = n * positions * channels + c
        value = element(X, at)
        if SUMS:
            if OF_ELEMENTS:
                value += element(skip, at)
            value += added(skip, bias, c, n * channels + c)
        return value

    return added, shift


def combining(gradient: bool, compute: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The device functions combine(count, first, second, more, other, another), of two parts' counts and pairs, and
    over_lanes(count, first, second, lanes), of the lanes of a warp, for the first of them. Both return three numbers.
    Sums have no count: it may be anything.
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
            more = FLOAT(0) if gradient else shuffle(count, distance)
            other, another = shuffle(first, distance), shuffle(second, distance)
            count, first, second = combine(count, first, second, more, other, another)
            distance = int32(distance // 2)
        return count, first, second

    return combine, over_lanes
