"""GELU and its slope in float64 against decimals of 50 digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from gradkern.kernels.gelu import gelu_of, slope_of

PI = Decimal("3.14159265358979323846264338327950288419716939937511")
EPSILON = Decimal(2) ** -52
FAST_TAIL = 20.9  # the fast form's
TAIL = 37.5  # the density is 2^-1014 here; a little further it is taken as 0


def density_and_distribution(z: Decimal) -> tuple[Decimal, Decimal]:
    """Of the normal distribution at z: by the series around 0, in the tails by Laplace's continued fraction."""
    t = abs(z)
    density = (-t * t / 2).exp() / (2 * PI).sqrt()
    if t < 2:
        term, total = t, Decimal(0)
        for odd in range(3, 200, 2):
            total, term = total + term, term * t * t / odd
        beyond = Decimal("0.5") - density * total
    else:
        below = t
        for n in range(400, 0, -1):
            below = t + n / below
        beyond = density / below
    return density, beyond if z < 0 else 1 - beyond


def errors(low: float, high: float) -> list[tuple[Decimal, Decimal, Decimal, Decimal]]:
    """Of the slope and of GELU at 200 places of a range, each with the number itself."""
    slope, gelu = slope_of(False, "float64", "float64", True), gelu_of(False, "float64", "float64", True)
    found = []
    with localcontext() as context:
        context.prec = 50
        for place in np.random.default_rng(0).uniform(low, high, 200):
            z = Decimal(float(place))
            density, distribution = density_and_distribution(z)
            steep, value = distribution + z * density, z * distribution
            off = abs(Decimal(float(slope(place))) - steep), abs(Decimal(float(gelu(place))) - value)
            found.append((off[0], steep, off[1], value))
    return found


@pytest.mark.parametrize(("low", "high"), [(-TAIL, -9.0), (-9.0, -1.0), (-1.0, 1.0), (1.0, 9.0), (9.0, TAIL)])
def test_float64_is_right_to_the_last_bits_and_the_tails_relative_to_themselves(low: float, high: float) -> None:
    """GELU's tail is off by what the C library's erfc is at an argument that is rounded first, or less."""
    for slope_off, slope, gelu_off, gelu in errors(low, high):
        assert slope_off <= (8 * EPSILON * abs(slope) if low < -1 else EPSILON)
        assert gelu_off <= (1000 if low < -1 else 8) * EPSILON * abs(gelu)


@pytest.mark.parametrize(("low", "high"), [(-FAST_TAIL, -5.0), (-5.0, -1.0), (-1.0, 1.0), (1.0, FAST_TAIL)])
def test_the_fast_form_is_right_to_the_last_bits_of_its_exponent(low: float, high: float) -> None:
    """The exponent 2 u is rounded before its exponential is taken, so that a tail is off by as many times more."""
    slope, gelu = slope_of(True, "float64", "float64", True), gelu_of(True, "float64", "float64", True)
    with localcontext() as context:
        context.prec = 50
        c, a, one = (2 / PI).sqrt(), Decimal("0.044715"), Decimal(1)
        for place in np.random.default_rng(1).uniform(low, high, 200):
            z = Decimal(float(place))
            exponent = 2 * c * (z + a * z**3)
            share = one / (one + (-exponent).exp())
            steep = share + 2 * c * z * share * (one - share) * (one + 3 * a * z * z)
            most = (8 + 4 * abs(exponent) if low < -1 else 16) * EPSILON
            assert abs(Decimal(float(slope(place))) - steep) <= most * (abs(steep) if low < -1 else one)
            assert abs(Decimal(float(gelu(place))) - z * share) <= most * abs(z * share)


@pytest.mark.parametrize("fast", [False, True])
def test_what_lies_far_out_is_flat_and_nan_stays(fast: bool) -> None:
    slope, gelu = slope_of(fast, "float64", "float64", True), gelu_of(fast, "float64", "float64", True)
    for far in (40.0, 1e300, np.inf):
        assert (slope(np.float64(far)), gelu(np.float64(far))) == (1, far)
        assert (slope(np.float64(-far)), gelu(np.float64(-far))) == (0, 0)
    assert np.isnan([slope(np.float64("nan")), gelu(np.float64("nan"))]).all()
