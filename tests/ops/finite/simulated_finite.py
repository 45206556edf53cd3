"""The kernels of finite elements and of the norm, simulated; test_simulated runs this file in its own process."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.held import hold
from helpers.reference import reference
from helpers.simulate_elementwise import simulate
from helpers.tolerance import assert_close

b, h, f, d = "bfloat16", "float16", "float32", "float64"
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("dtype", "size"), [(b, 4100), (h, 33), (f, 1029), (d, 700), (b, 3)])
@pytest.mark.parametrize("offset", [0, 1])
def test_the_norm_of_any_size_and_alignment(dtype: str, size: int, offset: int) -> None:
    X = RANDOM.standard_normal((1, size)).astype(dtype)
    assert_close(
        "ReduceAllL2",
        "Y",
        simulate("ReduceAllL2", {"X": hold(X, offset=offset)})["Y"],
        reference("ReduceAllL2", {"X": X})["Y"],
    )


@pytest.mark.parametrize(("dtype", "value"), [(h, 300.0), (b, 1e30), (f, 1e25), (f, 1e-25), (h, 1e-4)])
def test_squares_neither_overflow_nor_vanish(dtype: str, value: float) -> None:
    X = np.full((1, 100), value, dtype)
    X[0, 7] = 0
    expected = reference("ReduceAllL2", {"X": X})["Y"]
    found = simulate("ReduceAllL2", {"X": X})["Y"]
    assert abs(float(found) - expected) <= 2.0**-8 * expected
    wide = simulate("ReduceAllL2", {"X": X}, Y_type="float32")["Y"] if dtype != d else found
    assert abs(float(wide) - expected) <= 1e-6 * expected


@pytest.mark.parametrize("poison", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("dtype", "place"), [(b, 0), (h, 2050), (f, 1023), (d, 300)])
def test_one_element_that_is_not_finite_is_found_wherever_it_is(poison: float, dtype: str, place: int) -> None:
    X = RANDOM.standard_normal((1, max(place + 1, 301))).astype(dtype)
    largest = np.finfo(dtype).max if dtype != b else 3e38
    X[0, 5] = largest
    assert simulate("IsAllFinite", {"input": X})["output"]
    X[0, place] = poison
    assert not simulate("IsAllFinite", {"input": X})["output"]
    np.testing.assert_array_equal(simulate("IsFinite", {"X": X})["Y"], np.isfinite(X.astype(d)))


@pytest.mark.parametrize(("dtype", "arrays"), [(b, 2), (f, 40), (d, 3)])
def test_several_arrays_in_one_launch_each_with_blocks_of_its_own(dtype: str, arrays: int) -> None:
    sizes = [(1100,), (0,), (3, 7), (), (5,)] * (arrays // 5 + 1)
    X = {f"X_{n}" if n else "X": np.asarray(RANDOM.standard_normal(sizes[n])).astype(dtype) for n in range(arrays)}
    expected = reference("ReduceAllL2", X)["Y"]
    assert_close("ReduceAllL2", "Y", simulate("ReduceAllL2", X)["Y"], expected)
    given = {name.replace("X", "input"): each for name, each in X.items()}
    assert simulate("IsAllFinite", given)["output"]
    next(each for each in reversed(given.values()) if each.size)[...] = np.inf
    assert not simulate("IsAllFinite", given)["output"]


def test_all_of_nothing_are_finite_and_its_norm_is_0() -> None:
    assert simulate("IsAllFinite", {"input": np.zeros((1, 0), f)})["output"]
    assert simulate("ReduceAllL2", {"X": np.zeros((1, 0), f)})["Y"] == 0
