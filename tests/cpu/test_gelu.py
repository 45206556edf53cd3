"""exp, GELU and its gradients in CPU kernels, against the C library in wider arithmetic."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import typeof
from scipy.special import expit, ndtr

from gradkern.cpu.compile import Kernel, kernel
from gradkern.cpu.element_types import array_type, load, store
from gradkern.cpu.gelu import SCALE, exact_gelu, exact_gelu_gradient, fast_gelu, fast_gelu_gradient, scaled_exp
from gradkern.cpu.threads import QUEUE, take


@kernel
def exponentials(queue, z, exp):
    task = take(queue)
    while task >= 0:
        for index in range(z.size):
            store(exp, index, scaled_exp(load(z, index)))
        task = take(queue)


@kernel
def both(queue, z, exact, fast, gradient):
    """The gradients of the exact and the fast form; the functions themselves where gradient is None."""
    task = take(queue)
    while task >= 0:
        for index in range(z.size):
            if gradient is None:
                store(exact, index, exact_gelu(load(z, index)))
                store(fast, index, fast_gelu(load(z, index)))
            else:
                store(exact, index, exact_gelu_gradient(load(z, index)))
                store(fast, index, fast_gelu_gradient(load(z, index)))
        task = take(queue)


def computed(z: np.ndarray, gradient: bool | None = True) -> list[np.ndarray]:
    results = [np.empty_like(z) for _ in range(2)]
    both(QUEUE, *[array_type(z.dtype)] * 3, typeof(gradient))(np.array((0, 1)), z, *results, gradient)
    return results


c, a = 0.7978845608028654, 0.044715  # of the fast form


def expected_gelus(z: np.ndarray) -> list[np.ndarray]:
    z = z.astype(np.float64)
    return [z * ndtr(z), z * expit(2 * c * (z + a * z**3))]


def expected(z: np.ndarray) -> list[np.ndarray]:
    z = z.astype(np.float64)
    w, rest = expit(2 * c * (z + a * z**3)), expit(-2 * c * (z + a * z**3))  # (1 + tanh)/2, (1 - tanh)/2
    return [
        ndtr(z) + z * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi),
        w + 2 * z * c * w * rest * (1 + 3 * a * z * z),
    ]


LIMITS = {np.float32: (1.2e-7, 2.5e-7), np.float64: (1e-15, 1e-15)}
"""Absolute. Half a unit in the last place near 1 is 6e-8 and 1.1e-16."""


@pytest.mark.parametrize("dtype", LIMITS)
def test_the_functions_are_right_to_a_few_last_places(dtype: type) -> None:
    z = np.linspace(-14, 14, 1_000_001).astype(dtype)
    for result, reference, limit in zip(computed(z), expected(z), LIMITS[dtype], strict=True):
        assert np.abs(result - reference).max() <= limit


@pytest.mark.parametrize("dtype", LIMITS)
def test_gelus_are_right_to_a_few_last_places(dtype: type) -> None:
    """Relative to z, which they are nearly where it is positive, and less than elsewhere."""
    z = np.linspace(-14, 20, 1_000_001).astype(dtype)
    limit = {np.float32: 1.5e-7, np.float64: 1e-15}[dtype]
    for result, reference in zip(computed(z, gradient=None), expected_gelus(z), strict=True):
        assert (np.abs(result - reference) <= limit * np.abs(z)).all()


def test_the_exponential_is_right_where_it_is_subnormal() -> None:
    z = np.linspace(-129, 0, 1_000_001).astype(np.float32)
    exp = np.empty_like(z)
    exponentials(QUEUE, *[array_type(z.dtype)] * 2)(np.array((0, 1)), z, exp)
    exact = float(SCALE) * np.exp(z.astype(np.float64))
    assert (np.abs(exp - exact) <= 1e-7 * exact).all()


@pytest.mark.parametrize(("place", "begin", "roundings"), [(0, -14.5, 1.5), (1, -11.5, 4)])
def test_the_negative_tail_keeps_its_relative_precision_in_float32_to_the_end(
    place: int, begin: float, roundings: float
) -> None:
    """As far as so many roundings of the argument of exp allow, and down to the least subnormal."""
    z = np.linspace(begin, -3, 200_001).astype(np.float32)
    result, exact = computed(z)[place].astype(np.float64), expected(z)[place]
    of_argument = 4e-6 + roundings * 2.0**-24 * -np.log(np.abs(exact))
    assert (np.abs(result - exact) <= of_argument * np.abs(exact) + 2.0**-149).all()
    assert 0 < np.abs(exact).min() < 2.0**-149
    least = np.abs(result[np.abs(exact) > 2.0**-148])
    assert least.min() > 0


@pytest.mark.parametrize(("place", "begin", "roundings"), [(0, -14, 1.5), (1, -11, 4)])
def test_the_negative_tail_of_gelus_keeps_its_relative_precision_in_float32_to_the_end(
    place: int, begin: float, roundings: float
) -> None:
    """As that of their gradients; a factor of the result may be subnormal before it, and z times as far off."""
    z = np.linspace(begin, -3, 200_001).astype(np.float32)
    result, exact = computed(z, gradient=None)[place].astype(np.float64), expected_gelus(z)[place]
    of_argument = 4e-6 + roundings * 2.0**-24 * -np.log(np.abs(exact))
    assert (np.abs(result - exact) <= of_argument * np.abs(exact) + np.abs(z) * 2.0**-149).all()
    assert 0 < np.abs(exact).min() < 2.0**-140


@pytest.mark.parametrize("dtype", LIMITS)
def test_limits_of_gelus_and_nan(dtype: type) -> None:
    """The last is 0 of 0, with its sign."""
    z = np.array([np.inf, 1e4, -np.inf, -np.finfo(dtype).max, -1e4, np.nan, 0], dtype)
    for gelu in computed(z, gradient=None):
        np.testing.assert_array_equal(gelu, [np.inf, 1e4, 0, 0, 0, np.nan, 0])
        assert not np.signbit(gelu[-1])


@pytest.mark.parametrize("dtype", LIMITS)
def test_limits_and_nan(dtype: type) -> None:
    huge = np.finfo(dtype).max
    z = np.array([np.inf, huge, 1e4, -np.inf, -huge, -1e4, 0, np.nan], dtype)
    for gradient in computed(z):
        np.testing.assert_array_equal(gradient, [1, 1, 1, 0, 0, 0, 0.5, np.nan])


def test_float32_functions_are_vector_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))  # Numba does not show the code of a kernel from its cache
    compiled: Any = Kernel(both.function)(QUEUE, *[array_type(np.dtype(np.float32))] * 3, typeof(True))
    (assembly,) = compiled.inspect_asm().values()
    assert "divps" in assembly or "fdiv\tv" in assembly  # one element at a time would be divss, fdiv s
