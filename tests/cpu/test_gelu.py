"""exp and the GELU gradients of CPU kernels, against the C library in wider arithmetic."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtr

from gradkern.cpu.compile import Kernel, kernel
from gradkern.cpu.element_types import array_type, load, store
from gradkern.cpu.gelu import exact_gelu_gradient, exp_of_negative, fast_gelu_gradient
from gradkern.cpu.threads import QUEUE, take


@kernel
def all_three(queue, z, exp, exact, fast):
    task = take(queue)
    while task >= 0:
        for index in range(z.size):
            store(exp, index, exp_of_negative(-abs(load(z, index))))
            store(exact, index, exact_gelu_gradient(load(z, index)))
            store(fast, index, fast_gelu_gradient(load(z, index)))
        task = take(queue)


def computed(z: np.ndarray) -> list[np.ndarray]:
    results = [np.empty_like(z) for _ in range(3)]
    all_three(QUEUE, *[array_type(z.dtype)] * 4)(np.array((0, 1)), z, *results)
    return results


def expected(z: np.ndarray) -> list[np.ndarray]:
    z = z.astype(np.float64)
    c, a = 0.7978845608028654, 0.044715
    w, rest = expit(2 * c * (z + a * z**3)), expit(-2 * c * (z + a * z**3))  # (1 + tanh)/2, (1 - tanh)/2
    return [
        np.exp(-np.abs(z)),
        ndtr(z) + z * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi),
        w + 2 * z * c * w * rest * (1 + 3 * a * z * z),
    ]


LIMITS = {np.float32: (1e-7, 1.2e-7, 2.5e-7), np.float64: (1e-15, 1e-15, 1e-15)}
"""Absolute. Half a unit in the last place near 1 is 6e-8 and 1.1e-16."""


@pytest.mark.parametrize("dtype", LIMITS)
def test_the_functions_are_right_to_a_few_last_places(dtype: type) -> None:
    z = np.linspace(-14, 14, 1_000_001).astype(dtype)
    for result, reference, limit in zip(computed(z), expected(z), LIMITS[dtype], strict=True):
        assert np.abs(result - reference).max() <= limit


def test_the_far_negative_tail_keeps_its_relative_precision_in_float32() -> None:
    z = np.linspace(-10, -3, 100_001).astype(np.float32)
    _, exact, _ = computed(z)
    reference = expected(z)[1]
    assert (np.abs(exact - reference) <= 4e-6 * np.abs(reference)).all()


@pytest.mark.parametrize("dtype", LIMITS)
def test_limits_and_nan(dtype: type) -> None:
    huge = np.finfo(dtype).max
    z = np.array([np.inf, huge, 1e4, -np.inf, -huge, -1e4, 0, np.nan], dtype)
    for gradient in computed(z)[1:]:
        np.testing.assert_array_equal(gradient, [1, 1, 1, 0, 0, 0, 0.5, np.nan])


def test_float32_functions_are_vector_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADKERN_CACHE_DIR", str(tmp_path))  # Numba does not show the code of a kernel from its cache
    compiled: Any = Kernel(all_three.function)(QUEUE, *[array_type(np.dtype(np.float32))] * 4)
    (assembly,) = compiled.inspect_asm().values()
    assert "divps" in assembly or "fdiv\tv" in assembly  # one element at a time would be divss, fdiv s
