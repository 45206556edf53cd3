"""The search's two kernels under the CUDA simulator: random data, and how far results are apart."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import simulated
from helpers.guarded import Guarded

from gradkern.search import kernels
from gradkern.search.bench import MEASURES, THREADS

GRID, COUNT = 2, 1500
TYPES = ["float32", "float64", "float16", "bfloat16"]


def filled(dtype: str, seed: int) -> Guarded:
    made = Guarded((COUNT,), dtype)
    arguments = tuple(np.int64(each) for each in (made.address, COUNT, seed))
    simulated.launch(kernels.fill(dtype), GRID, THREADS, 1, 0, arguments)
    made.check()
    return made


def measured(a: Guarded, b: Guarded) -> np.ndarray:
    result = Guarded((1, MEASURES), "float64")  # one block: Numba's simulator has one shared array for all blocks
    arguments = tuple(np.int64(each) for each in (a.address, b.address, COUNT, result.address))
    simulated.launch(kernels.compare(a.array.dtype.name), 1, THREADS, 1, 0, arguments)
    result.check()
    return result.array[0].copy()


@pytest.mark.parametrize("dtype", TYPES)
def test_random_data_is_spread_over_its_range_and_differs_by_seed(dtype: str) -> None:
    first, second = (filled(dtype, seed).array.astype(np.float64) for seed in (1, 7920))
    for each in (first, second):
        assert -1 <= each.min() < -0.95
        assert 0.95 < each.max() <= 1
        assert abs(each.mean()) < 0.05
        assert abs(each.std() - 3**-0.5) < 0.03
        assert len(np.unique(each)) > COUNT / 10  # bfloat16 has few numbers
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.1


@pytest.mark.parametrize("dtype", TYPES)
def test_measures_are_those_of_the_numbers(dtype: str) -> None:
    a, b = filled(dtype, 1), filled(dtype, 1)
    a.array[100:700:3] = np.nan  # the gaps of an array are poison in both
    b.array[100:700:3] = np.nan
    squares = np.nansum(b.array.astype(np.float64) ** 2)
    apart, norm, numbers, worst = measured(a, b)
    assert (apart, numbers, worst) == (0, COUNT - 200, 0)
    np.testing.assert_allclose(norm, squares, rtol=1e-12)
    a.array[1499] = 0.5
    b.array[1499] = 0.25
    apart, _, _, worst = measured(a, b)
    assert apart == 0.0625
    assert worst == 0.25 - float(ml_dtypes.finfo(dtype).eps) * 0.5
    a.array[3] = np.nan
    assert measured(a, b)[2] == COUNT - 201


def test_a_step_of_the_type_is_no_difference_of_an_element() -> None:
    a, b = filled("float16", 1), filled("float16", 1)
    a.array[...] = np.nextafter(b.array, np.float16(2))
    apart, _, _, worst = measured(a, b)
    assert apart > 0
    assert worst == 0
