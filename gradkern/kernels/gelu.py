"""Both forms of GELU and their slopes (derivatives), for kernels.

    exact  Phi(z) + z phi(z):  G(-z) for z < 0, 1 - G(z) else, where  G(t) = e (M(t) - t phi(0)),
           e = exp(-t^2/2),  M(t) = (1 - Phi(t)) / e
    fast   w + 2 c z w (1 - w) (1 + 3 a z^2),  w = (1 + tanh(u))/2 = 1/(1 + e),  e = exp(-2 u),  1 - w = e w,
           u = c (z + a z^3)

In float32 each takes one exponential and one reciprocal, the device's approximate ones, and no digits cancel: the
tails are accurate in relative terms, too. M is a polynomial of degree 5 in v = t/(1 + 0.32 t), fitted in float64 by
least squares on 900 Chebyshev nodes of 0 <= t <= 14, reweighted until the largest errors were equal (Lawson's
method), M(0) kept: e M is off by at most 3.8e-8, and from t = 1.5 on M by at most 7.6e-5 of G/e. v, rather than
Abramowitz and Stegun's 1/(1 + p t) in 7.1.26, keeps the relative precision of a small t; the rounding of theirs costs
2e-7.

GELU itself is z times Phi(z), e M(-z) below 0 and 1 - e M(z) above, or times w. For it M is the polynomial of degree 8
in t/(1 + 0.3 t) of gradkern.cpu.gelu: relative error 3.8e-7, e M off by at most 7.3e-9.

Where all results have 16 bits, the exact forms take one exponential and no reciprocal: Phi(-t) is 2^p(t), GELU
max(z, 0) - t Phi(-t), and G(t) is (root - t) 2^p(t), root that of G. p is fitted as M is, to where results are 0: of
degree 9 for slopes, for GELU 8 in bfloat16 and 6 in float16. All are off by at most an eighth of a unit in the last
place.

In float64 the instructions take longer than memory: a slope takes 55 of float64 where it took 91 with the C library's
functions. M is the polynomial of degree 20 in t/(t + 5), and exp(-r/2) that of degree 11 in r, |r| <= log(2): both
interpolate at Chebyshev nodes. The slope's tail is right to 8 units in the last place, where the C library's are off by
hundreds. The fast forms take this exponential, too, and the reciprocal: no branch keeps elements from being computed
side by side, as the C library's do.

z is bounded first, where the slope is 0 or 1 already, so that its powers stay finite and nothing is infinity times
zero. The bounds keep NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.cuda import float32

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.function import device_function

_DENSITY_AT_0 = 0.3989422804014327  # phi(0)
_LOG2_E = 1.4426950408889634
_C, _A = 0.7978845608028654, 0.044715  # of the fast form
_FLAT = 40.0  # beyond, slopes are 0 or 1 to the last bit, in float64 too
_FAST_FLAT = 10.031  # here e is 2^127, and w flushes to 0; with any more e would be infinite, and e w NaN
_V = 0.32
_M = (0.5, -0.39894158, 0.122325093, -0.0137642203, -0.00157853763, 0.000425741106)
_FINE_V = 0.3
_FINE_M = (
    *(0.5000000072332977, -0.3989428041789893, 0.13032353042121225, -0.0189135820354889, -0.00039195727209235344),
    *(0.0002868930549858377, 7.622329152636385e-05, -2.7801832093962242e-05, 2.3068438888880675e-06),
)
_GELU_FLAT = {"bfloat16": 14.0, "float16": 6.0}  # results are 0 from here on, and p is not valid
_SLOPE_FLAT = 13.3  # where the exponential is 0
_UP = 24  # GELU's tail is kept so many powers of two higher till it is multiplied: bfloat16 goes to 2^-133
_TAIL = {  # log2 Phi(-t)
    "bfloat16": (
        *(-1.00017936, -1.14908539, -0.462699728, -0.0508569053, 0.00743692418),
        *(-0.000747179007, 4.7912689e-05, -1.74969127e-06, 2.75412735e-08),
    ),
    "float16": (
        *(-1.00000759, -1.15103662, -0.459170532, -0.0530517413, 0.00794224048),
        *(-0.000748415209, 3.2444335e-05),
    ),
}
_ROOT = 0.7517915246935645  # of G
_SLOPE = {  # log2 G(t)/(root - t)
    "bfloat16": (
        *(-0.588560651, -0.380445207, -0.568620518, -0.0459776558, 0.00988075998),
        *(-0.00145648538, 0.000141943062, -8.67819944e-06, 3.00233362e-07, -4.47270825e-09),
    ),
    "float16": (
        *(-0.588407222, -0.383128374, -0.560900237, -0.0545882302, 0.0147578222),
        *(-0.0030382012, 0.000450263607, -4.45922367e-05, 2.61434247e-06, -6.81469662e-08),
    ),
}
_FLAT64 = 37.6  # e is 2^-1020 here, and 0 beyond
_FAST_FLAT64 = 21.0  # e is 2^-1002 here, and 0 beyond
_V64 = 5.0
_M64 = (
    *(0.5, -1.9947114020071781, 4.255288597995306, -6.117306418898398),
    *(5.9500035536708955, -3.5932567139572114, 0.849881553017692, 0.4521637710257789),
    *(-0.3150109586131033, -0.07372932006646186, 0.09209968177330365, 0.011444066422990454),
    *(0.013010164015483695, -0.08974512149417233, 0.13486196908913847, -0.16314741735956848),
    *(0.16437815561218122, -0.11735914995897544, 0.053549335926129545, -0.01403088971985518),
    0.0016165435506827462,
)
_EXP = (
    *(1.0, -0.5, 0.12500000000000047, -0.02083333333333335),
    *(0.002604166666655497, -0.00026041666666623716, 2.170138898805135e-05, -1.550099210162219e-06),
    *(9.688080250609888e-08, -5.382273610787084e-09, 2.6985014377468545e-10, -1.226076621329036e-11),
)
_ROUND = 1.5 * 2.0**52  # adding a number rounds it to an integer, in the low bits of the sum
_TWO_LN2 = (1.386294361203909, -8.401830145362169e-11)  # 2 log(2): whole numbers times the first part are exact


def slope_of(fast: bool, compute: str, result: str, native: bool, gelu: bool = False) -> Callable[[Any], Any]:
    """The inline device function slope(z), z in the type `compute`, accurate for the type `result`. native: compute
    capability 8.0 or newer. gelu: GELU itself.
    """
    if compute == "float64":
        return _fast64(gelu) if fast else _exact64(gelu)
    if fast:
        return _fast32(native, gelu)
    return _exact32(native, gelu) if result == "float32" else _exact16(result, native, gelu)


def gelu_of(fast: bool, compute: str, result: str, native: bool) -> Callable[[Any], Any]:
    """The inline device function gelu(z), with the same parameters."""
    return slope_of(fast, compute, result, native, gelu=True)


def _exp2_of(coefficients: tuple[float, ...], more: float = 0) -> Callable[[Any], Any]:
    """The device function 2^(p(t) + more) of a polynomial of degree 6, 8 or 9."""
    DEGREE = len(coefficients) - 1
    C1, C2, C3, C4, C5, C6, C7, C8, C9 = (float32(each) for each in (*coefficients, 0, 0, 0)[1:10])
    C0 = float32(coefficients[0] + more)

    @device_function
    def power(t: Any) -> Any:
        high = C6
        if DEGREE == 8:
            high = C6 + t * (C7 + t * C8)
        elif DEGREE == 9:
            high = C6 + t * (C7 + t * (C8 + t * C9))
        return i.exp2_approximate(C0 + t * (C1 + t * (C2 + t * (C3 + t * (C4 + t * (C5 + t * high))))))

    return power


def _exp_of_half64() -> Callable[[Any, Any], Any]:
    """The device function exp(-(s + rest)/2), 0 <= s <= 1414, with a rest that is small."""
    SCALE, ROUND = -0.5 * 1.4426950408889634, _ROUND
    HIGH, LOW = _TWO_LN2
    E0, E1, E2, E3, E4, E5, E6, E7, E8, E9, E10, E11 = _EXP

    @device_function
    def power(s: Any, rest: Any) -> Any:
        # s = r - k 2 log(2); then exp(-s/2) = 2^k exp(-r/2), |r| <= log(2)
        exponent = s * SCALE + ROUND
        k = exponent - ROUND
        r = i.fused(k, LOW, i.fused(k, HIGH, s)) + rest
        high = E6 + r * (E7 + r * (E8 + r * (E9 + r * (E10 + r * E11))))
        return i.times_power_of_2(E0 + r * (E1 + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * high))))), exponent)

    return power


def _reciprocal64() -> Callable[[Any], Any]:
    """The device function 1/x, x from 1 to 1e3: by one cubic step from an approximate reciprocal, without a branch."""
    ONE = 1.0

    @device_function
    def reciprocal(x: Any) -> Any:
        near = i.reciprocal_approximate_double(x)
        error = i.fused(-x, near, ONE)
        return near + near * (error + error * error)

    return reciprocal


def _density_and_tail64() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The device functions exp(-t^2/2) and M(t), 0 <= t <= _FLAT64: 44 instructions in float64."""
    V, END = _V64, _FLAT64
    power, reciprocal = _exp_of_half64(), _reciprocal64()
    M0, M1, M2, M3, M4, M5, M6, M7, M8, M9, M10, M11, M12, M13, M14, M15, M16, M17, M18, M19, M20 = _M64

    @device_function
    def density(t: Any) -> Any:
        square = t * t
        e = power(square, i.fused(t, t, -square))  # t^2 to the last bit, and more
        return e if t < END else 0.0 * t

    @device_function
    def tail(t: Any) -> Any:
        v = t * reciprocal(t + V)
        high = M16 + v * (M17 + v * (M18 + v * (M19 + v * M20)))
        high = M11 + v * (M12 + v * (M13 + v * (M14 + v * (M15 + v * high))))
        high = M6 + v * (M7 + v * (M8 + v * (M9 + v * (M10 + v * high))))
        return M0 + v * (M1 + v * (M2 + v * (M3 + v * (M4 + v * (M5 + v * high)))))

    return density, tail


def _exact32(native: bool, gelu: bool) -> Callable[[Any], Any]:
    """The slope, or GELU itself."""
    GELU, FLAT, V, ONE = gelu, float32(_FLAT), float32(_FINE_V if gelu else _V), float32(1)
    DENSITY, EXPONENT = float32(_DENSITY_AT_0), float32(-0.5 * _LOG2_E)
    M0, M1, M2, M3, M4, M5, M6, M7, M8 = (float32(each) for each in (_FINE_M if gelu else (*_M, 0, 0, 0)))
    at_most = i.at_most(native)

    @device_function
    def exact(z: Any) -> Any:
        if GELU:
            z = -at_most(-z, FLAT)
        t = at_most(abs(z), FLAT)
        e = i.exp2_approximate(t * t * EXPONENT)
        v = t * i.reciprocal_approximate(ONE + V * t)
        high = M5 + v * (M6 + v * (M7 + v * M8)) if GELU else M5
        m = M0 + v * (M1 + v * (M2 + v * (M3 + v * (M4 + v * high))))
        beyond = e * m if GELU else e * (m - DENSITY * t)
        share = beyond if z < float32(0) else ONE - beyond
        return z * share if GELU else share

    return exact


def _exact16(result: str, native: bool, gelu: bool) -> Callable[[Any], Any]:
    """The slope, or GELU itself."""
    GELU, FLAT = gelu, float32(_GELU_FLAT[result] if gelu else _SLOPE_FLAT)
    ROOT, ONE, DOWN = float32(_ROOT), float32(1), float32(2.0**-_UP)
    power = _exp2_of(_TAIL[result], _UP) if gelu else _exp2_of(_SLOPE[result])
    at_most = i.at_most(native)

    @device_function
    def exact(z: Any) -> Any:
        t = at_most(abs(z), FLAT)
        if GELU:
            return i.positive_part(z) - t * power(t) * DOWN
        g = (ROOT - t) * power(t)
        return g if z < float32(0) else ONE - g

    return exact


def _fast32(native: bool, gelu: bool) -> Callable[[Any], Any]:
    """The slope, or GELU itself."""
    GELU, FLAT, ONE = gelu, float32(_FAST_FLAT), float32(1)
    U1, U3 = float32(-2 * _LOG2_E * _C), float32(-2 * _LOG2_E * _C * _A)  # exp(-2 u) = 2^(z (U1 + U3 z^2))
    Q1, Q3 = float32(2 * _C), float32(2 * _C * 3 * _A)
    at_most = i.at_most(native)

    @device_function
    def fast(z: Any) -> Any:
        if GELU:
            z = -at_most(-z, FLAT)
            bounded = at_most(z, FLAT)
            e = i.exp2_approximate(bounded * (U1 + U3 * (bounded * bounded)))
            return z * i.reciprocal_approximate(ONE + e)
        z = at_most(z, FLAT)
        z = -at_most(-z, FLAT)
        square = z * z
        e = i.exp2_approximate(z * (U1 + U3 * square))
        w = i.reciprocal_approximate(ONE + e)
        q = z * (Q1 + Q3 * square)
        return w * (ONE + q * (e * w))

    return fast


def _exact64(gelu: bool) -> Callable[[Any], Any]:
    """The slope, or GELU itself."""
    GELU, DENSITY, END = gelu, _DENSITY_AT_0, _FLAT64
    density, tail = _density_and_tail64()

    @device_function
    def exact(z: Any) -> Any:
        if GELU:
            z = -END if z < -END else z
        t = abs(z)
        t = END if t > END else t
        beyond = density(t) * tail(t) if GELU else density(t) * (tail(t) - DENSITY * t)
        share = beyond if z < 0.0 else 1.0 - beyond
        return z * share if GELU else share

    return exact


def _fast64(gelu: bool) -> Callable[[Any], Any]:
    """The slope, or GELU itself: with |u|, so that e is at most 1."""
    GELU, Q1, Q3, END = gelu, 2 * _C, 2 * _C * 3 * _A, _FAST_FLAT64
    decay, reciprocal = _decay64(), _reciprocal64()

    @device_function
    def fast(z: Any) -> Any:
        if GELU:
            z = -END if z < -END else z
            t = abs(z)
            t = END if t > END else t
            e = decay(t, t * t)
            w = reciprocal(1.0 + e)
            return z * (e * w if z < 0.0 else w)
        z = END if z > END else z
        z = -END if z < -END else z
        square = z * z
        e = decay(abs(z), square)
        w = reciprocal(1.0 + e)
        other = e * w
        return (other if z < 0.0 else w) + z * (Q1 + Q3 * square) * (other * w)

    return fast


def _decay64() -> Callable[[Any, Any], Any]:
    """The device function exp(-2 c (t + a t^3)), of t from 0 to _FAST_FLAT64 and its square; 0 at the end, and NaN."""
    S1, S3, END = 4 * _C, 4 * _C * _A, _FAST_FLAT64
    power = _exp_of_half64()

    @device_function
    def decay(t: Any, square: Any) -> Any:
        e = power(t * (S1 + S3 * square), 0.0)
        return e if t < END else 0.0 * t

    return decay
