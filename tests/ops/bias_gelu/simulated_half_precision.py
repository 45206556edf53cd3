"""GELU and its slope as results of 16 bits can tell, at every number of 16 bits."""

from __future__ import annotations

from math import erfc, exp, inf, nan, pi, sqrt

import numpy as np
import pytest

from gradkern.kernels.gelu import gelu_of, slope_of


def units(found: float, expected: float, dtype: str) -> float:
    """How far they are apart, in units in the last place that the expected number has in the type."""
    digits, least = {"bfloat16": (8, -133), "float16": (11, -24)}[dtype]
    return abs(found - expected) / 2.0 ** max(np.frexp(expected)[1] - digits, least)


def every(dtype: str) -> list[np.float32]:
    """Every finite number of the type."""
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    return list(values[np.isfinite(values)])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gelu_is_right_to_an_eighth_of_the_last_place(dtype: str) -> None:
    gelu = gelu_of(False, "float32", dtype, True)
    worst = max((units(float(gelu(z)), float(z) * erfc(-float(z) / sqrt(2)) / 2, dtype), z) for z in every(dtype))
    assert worst[0] <= 1 / 8, worst


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_slope_is_right_to_an_eighth_of_the_last_place(dtype: str) -> None:
    """Float16's too relative to itself where it is too small for the type: it is multiplied by numbers up to 65504.
    Beyond 13.1 bfloat16's is less than 2^-120, and the exponential's last powers of two are taken as 0.
    """
    slope = slope_of(False, "float32", dtype, True)

    def off(z: np.float32) -> float:
        x = float(z)
        expected, scale = erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi), 65504.0 if x < -1 else 1.0
        if x < -13.1 and dtype == "bfloat16":
            return abs(float(slope(z)) - expected) * 2.0**120
        return units(scale * float(slope(z)), scale * expected, dtype)

    worst = max((off(z), z) for z in every(dtype))
    assert worst[0] <= 1 / 8, worst


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_is_infinite_or_no_number(dtype: str) -> None:
    slope, gelu = slope_of(False, "float32", dtype, True), gelu_of(False, "float32", dtype, True)
    assert [float(gelu(np.float32(each)).astype(dtype)) for each in (inf, -inf)] == [inf, 0]
    assert [float(slope(np.float32(each))) for each in (inf, -inf)] == [1, 0]
    assert np.isnan([gelu(np.float32(nan)), slope(np.float32(nan))]).all()
