"""exp, GELU and its gradients for kernels.

In float32 they are plain arithmetic without branches, and LLVM makes vector code of it; without Intel's SVML it calls
the C library for each element of math.exp and math.erf. float64 does call the C library: the true functions.

The float32 polynomials were fitted with mpmath at 40 digits by least squares on 400 Chebyshev nodes, reweighted until
the largest errors were equal (Lawson's method).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.cpu.compile import INLINE, by_types, emitted, ir

_ZERO, _HALF, _ONE, _TWO = (np.float32(value) for value in (0, 0.5, 1, 2))

# Beyond, both gradients are exactly 0 or 1: a bound for |z| that keeps powers of z finite, and in float32 the argument
# of exp from -104, where it is 0, to -130.
_FLAT = 40.0
_EXACT_FLAT, _FAST_FLAT = np.float32(16), np.float32(11)

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # 9 bits: its product with a whole number below 2^15 is exact
_LN2_LOW = np.float32(-2.12194440e-4)
_ROUNDER = np.float32(1.5 * 2**23)  # adding it leaves no bits for a fraction, and the whole number in the lowest bits
_SMALLEST = np.float32(-130)  # 2^64 exp of it is a normal number
SCALE = np.float32(2.0**64)  # of exp: gradients are several times exp, and normal numbers where exp is none
_SHRINK = np.float32(2.0**-64)
_SCALED_ONE = np.int32((127 + 64) << 23)  # the bits of SCALE

# exp(r) = 1 + r + r^2 * E(r) for |r| <= 1.01 * ln(2)/2, relative error 3.3e-9.
_E0, _E1, _E2, _E3, _E4 = (
    np.float32(value)
    for value in (
        0.49999993050491975,
        0.16666514789117126,
        0.04166845683310014,
        0.008369419043617822,
        0.001381314236804727,
    )
)

# (1 - Phi(t)) exp(t^2/2) = M(v) with v = t/(1 + 0.3 t), for 0 <= t <= 15: absolute error 7.3e-9 after multiplication by
# exp(-t^2/2), relative error 3.8e-7. In v rather than Abramowitz and Stegun's 1/(1 + p t) (7.1.26: 1.5e-7), because
# v keeps the relative precision of a small t: 1/(1 + p t) loses 2e-7 of the result to its own rounding. Divided by
# SCALE, as is the density.
_V = np.float32(0.3)
_M0, _M1, _M2, _M3, _M4, _M5, _M6, _M7, _M8 = (
    np.float32(value) * _SHRINK
    for value in (
        0.5000000072332977,
        -0.3989428041789893,
        0.13032353042121225,
        -0.0189135820354889,
        -0.00039195727209235344,
        0.0002868930549858377,
        7.622329152636385e-05,
        -2.7801832093962242e-05,
        2.3068438888880675e-06,
    )
)
_DENSITY_AT_0 = 0.3989422804014327  # 1/sqrt(2 pi)
_SHRUNK_DENSITY = np.float32(_DENSITY_AT_0) * _SHRINK
_SQRT_HALF = math.sqrt(0.5)

# The fast form: u = c (z + a z^3).
_C, _A = 0.7978845608028654, 0.044715
_C32, _A32 = np.float32(_C), np.float32(_A)
_P0, _P1 = np.float32(2 * _C), np.float32(6 * _C * _A)


@emitted(types.int32(types.float32))
def _bits(builder: Any, value: Any) -> Any:
    """A float32's bits."""
    return builder.bitcast(value, ir.IntType(32))


@emitted(types.float32(types.int32))
def _from_bits(builder: Any, value: Any) -> Any:
    """The float32 of these bits."""
    return builder.bitcast(value, ir.FloatType())


@numba.njit(**INLINE)
def _at_most(value: Any, bound: Any) -> Any:
    """The minimum; NaN if value is NaN."""
    return bound if value > bound else value


@numba.njit(**INLINE)
def _scaled_exp(x: Any) -> Any:
    """SCALE exp(x) of a float32 x from -130 to 0, relative error at most 1e-7."""
    # x = n ln2 + r, exp(x) = 2^n exp(r)
    shifted = x * _LOG2_E + _ROUNDER
    n = shifted - _ROUNDER
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    tail = _E0 + r * (_E1 + r * (_E2 + r * (_E3 + r * _E4)))
    mantissa = _ONE + r * (_ONE + r * tail)
    power = _from_bits(np.int32(np.int32(_bits(shifted) << 23) + _SCALED_ONE))
    return power * mantissa


@numba.njit(**INLINE)
def scaled_exp(x: Any) -> Any:
    """SCALE exp(x) of a float32 x <= 0, relative error at most 1e-7; 0 below -130."""
    return _ZERO if x < _SMALLEST else _scaled_exp(x)


@by_types(**INLINE)
def exp(x: Any) -> Any:
    """The exponential of any x; relative error at most 2e-7 in float32."""
    if x == types.float64:

        def exp64(x: Any) -> Any:
            return math.exp(x)

        return exp64

    def exp32(x: Any) -> Any:
        e = scaled_exp(-abs(x)) / SCALE
        return _ONE / e if x > _ZERO else e

    return exp32


@numba.njit(**INLINE)
def _tail(t: Any) -> tuple[Any, Any]:
    """e and m of a float32 t from 0 to _EXACT_FLAT: SCALE exp(-t^2/2), and (1 - Phi(t))/e."""
    e = _scaled_exp(-_HALF * t * t)
    v = t / (_ONE + _V * t)
    high = _M5 + v * (_M6 + v * (_M7 + v * _M8))
    return e, _M0 + v * (_M1 + v * (_M2 + v * (_M3 + v * (_M4 + v * high))))


@by_types(**INLINE)
def exact_gelu_gradient(z: Any) -> Any:
    """Phi(z) + z phi(z): the gradient of z Phi(z), Phi the normal distribution function, phi its density."""
    if z == types.float64:

        def exact64(z: Any) -> Any:
            z = _at_most(z, _FLAT)
            z = -_at_most(-z, _FLAT)
            return 0.5 * math.erfc(-z * _SQRT_HALF) + z * (_DENSITY_AT_0 * math.exp(-0.5 * z * z))

        return exact64

    def exact32(z: Any) -> Any:
        # With t = |z| and e = exp(-t^2/2), 1 - Phi(t) = e M and phi(t) = e/sqrt(2 pi): the gradient at -t is
        # e (M - t/sqrt(2 pi)), and at t it is 1 less that.
        t = _at_most(abs(z), _EXACT_FLAT)
        e, m = _tail(t)
        gradient = e * (m - _SHRUNK_DENSITY * t)
        return gradient if z < _ZERO else _ONE - gradient

    return exact32


@by_types(**INLINE)
def fast_gelu_gradient(z: Any) -> Any:
    """The gradient of z (1 + t)/2 with t = tanh(c (z + a z^3))."""
    # With t = |z|, e = exp(-2|u|), w = 1/(1 + e) and p = 2 c t (1 + 3 a t^2): (1 + tanh u)/2 is w, and e w for negative
    # u; 1 - tanh^2 u is 4 e w^2. So the gradient at -t is e w (1 - p w), and at t it is 1 less that.
    if z == types.float64:

        def fast64(z: Any) -> Any:
            z = _at_most(z, _FLAT)
            z = -_at_most(-z, _FLAT)
            square = z * z
            e = math.exp(-2.0 * _C * abs(z) * (1.0 + _A * square))
            w = 1.0 / (1.0 + e)
            half = w if z >= 0.0 else e * w
            return half + 2.0 * _C * z * (e * w * w) * (1.0 + 3.0 * _A * square)

        return fast64

    def fast32(z: Any) -> Any:
        t = _at_most(abs(z), _FAST_FLAT)
        square = t * t
        e = _scaled_exp(-_TWO * _C32 * t * (_ONE + _A32 * square))
        v = _ONE / (SCALE + e)  # w, divided by SCALE
        gradient = e * (_ONE - t * (_P0 + _P1 * square) * (SCALE * v)) * v
        return gradient if z < _ZERO else _ONE - gradient

    return fast32


@by_types(**INLINE)
def exact_gelu(z: Any) -> Any:
    """z Phi(z), Phi the normal distribution function; 0 of minus infinity."""
    if z == types.float64:

        def exact64(z: Any) -> Any:
            z = -_at_most(-z, _FLAT)
            return z * (0.5 * math.erfc(-z * _SQRT_HALF))

        return exact64

    def exact32(z: Any) -> Any:
        # as in the gradient: Phi(-t) is e M, so that the result at -t is -t e M, and at t more by t
        t = _at_most(abs(z), _EXACT_FLAT)
        e, m = _tail(t)
        return (_ZERO if z < _ZERO else z) - t * (e * m)

    return exact32


@by_types(**INLINE)
def fast_gelu(z: Any) -> Any:
    """z (1 + t)/2 with t = tanh(c (z + a z^3)); 0 of minus infinity."""
    # as in the gradient: with e = exp(-2|u|), (1 + tanh u)/2 is 1/(1 + e), and e/(1 + e) for negative u
    if z == types.float64:

        def fast64(z: Any) -> Any:
            z = -_at_most(-z, _FLAT)
            bounded = _at_most(z, _FLAT)
            e = math.exp(-2.0 * _C * abs(bounded) * (1.0 + _A * bounded * bounded))
            w = 1.0 / (1.0 + e)
            return z * (w if z >= 0.0 else e * w)

        return fast64

    def fast32(z: Any) -> Any:
        t = _at_most(abs(z), _FAST_FLAT)
        e = _scaled_exp(-_TWO * _C32 * t * (_ONE + _A32 * (t * t)))
        return (_ZERO if z < _ZERO else z) - t * (e / (SCALE + e))

    return fast32
