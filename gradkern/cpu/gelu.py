"""exp and the gradients of GELU for kernels.

In float32 they are plain arithmetic without branches, which LLVM turns into vector code; without Intel's SVML it calls
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
from numba.extending import overload

from gradkern.cpu.compile import INLINE, instruction
from gradkern.cpu.llvm import ir

__all__ = ["exact_gelu_gradient", "exp_of_negative", "fast_gelu_gradient"]

_ZERO, _HALF, _ONE, _TWO, _THREE = (np.float32(value) for value in (0, 0.5, 1, 2, 3))

# Beyond, both gradients are exactly 0 or 1 in float32 and in float64: a bound for |z| that keeps powers of z finite.
_FLAT = 40.0
_FLAT32 = np.float32(_FLAT)

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # 9 bits: its product with a whole number below 2^15 is exact
_LN2_LOW = np.float32(-2.12194440e-4)
_ROUNDER = np.float32(1.5 * 2**23)  # adding it leaves no bits for a fraction, and the whole number in the lowest bits
_SMALLEST = np.float32(-87.33)  # exp of less is subnormal, and taken for 0

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
# v keeps the relative precision of a small t: 1/(1 + p t) loses 2e-7 of the result to its own rounding.
_V = np.float32(0.3)
_M0, _M1, _M2, _M3, _M4, _M5, _M6, _M7, _M8 = (
    np.float32(value)
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
_DENSITY_AT_0_32 = np.float32(_DENSITY_AT_0)
_SQRT_HALF = math.sqrt(0.5)

# The fast form: u = c (z + a z^3).
_C, _A = 0.7978845608028654, 0.044715
_C32, _A32 = np.float32(_C), np.float32(_A)


def _bitcast(target: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], target)

    return generate


@instruction
def _bits(typing: Any, value: Any) -> Any:
    """A float32's bits."""
    return types.int32(types.float32), _bitcast(ir.IntType(32))


@instruction
def _from_bits(typing: Any, value: Any) -> Any:
    """The float32 of these bits."""
    return types.float32(types.int32), _bitcast(ir.FloatType())


@numba.njit(**INLINE)
def _at_most(value: Any, bound: Any) -> Any:
    """The lesser of the two; NaN if value is."""
    return bound if value > bound else value


def exp_of_negative(x: Any) -> Any:
    """exp(x) for x <= 0. float32: relative error at most 1e-7, and 0 where the result would be subnormal."""
    raise NotImplementedError("for kernels only")


def exact_gelu_gradient(z: Any) -> Any:
    """Phi(z) + z phi(z): the gradient of z Phi(z), Phi the normal distribution function, phi its density."""
    raise NotImplementedError("for kernels only")


def fast_gelu_gradient(z: Any) -> Any:
    """The gradient of z (1 + t)/2 with t = tanh(c (z + a z^3))."""
    raise NotImplementedError("for kernels only")


@overload(exp_of_negative, jit_options=INLINE)
def _exp_of_negative(x: Any) -> Any:
    if x == types.float64:

        def exp64(x: Any) -> Any:
            return math.exp(x)

        return exp64

    def exp32(x: Any) -> Any:
        # x = n ln2 + r, exp(x) = 2^n exp(r)
        shifted = x * _LOG2_E + _ROUNDER
        n = shifted - _ROUNDER
        r = (x - n * _LN2_HIGH) - n * _LN2_LOW
        tail = _E0 + r * (_E1 + r * (_E2 + r * (_E3 + r * _E4)))
        mantissa = _ONE + (r + r * r * tail)
        power = _from_bits(np.int32(np.int32(_bits(shifted) << 23) + np.int32(0x3F800000)))
        return _ZERO if x < _SMALLEST else power * mantissa

    return exp32


@overload(exact_gelu_gradient, jit_options=INLINE)
def _exact_gelu_gradient(z: Any) -> Any:
    if z == types.float64:

        def exact64(z: Any) -> Any:
            z = _at_most(z, _FLAT)
            z = -_at_most(-z, _FLAT)
            return 0.5 * math.erfc(-z * _SQRT_HALF) + z * (_DENSITY_AT_0 * math.exp(-0.5 * z * z))

        return exact64

    def exact32(z: Any) -> Any:
        # With t = |z| and e = exp(-t^2/2), 1 - Phi(t) = e M and phi(t) = e/sqrt(2 pi): the gradient at -t is
        # e (M - t/sqrt(2 pi)), and at t it is 1 less that.
        t = _at_most(abs(z), _FLAT32)
        e = exp_of_negative(-_HALF * t * t)
        v = t / (_ONE + _V * t)
        high = _M5 + v * (_M6 + v * (_M7 + v * _M8))
        m = _M0 + v * (_M1 + v * (_M2 + v * (_M3 + v * (_M4 + v * high))))
        gradient = e * (m - _DENSITY_AT_0_32 * t)
        return gradient if z < _ZERO else _ONE - gradient

    return exact32


@overload(fast_gelu_gradient, jit_options=INLINE)
def _fast_gelu_gradient(z: Any) -> Any:
    # With e = exp(-2|u|): (1 + t)/2 = 1/(1 + e), for negative u e/(1 + e); 1 - t^2 = 4e/(1 + e)^2. Nothing cancels.
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
        z = _at_most(z, _FLAT32)
        z = -_at_most(-z, _FLAT32)
        square = z * z
        e = exp_of_negative(-_TWO * _C32 * abs(z) * (_ONE + _A32 * square))
        w = _ONE / (_ONE + e)
        half = e * w if z < _ZERO else w
        return half + _TWO * _C32 * z * (e * w * w) * (_ONE + _THREE * _A32 * square)

    return fast32
