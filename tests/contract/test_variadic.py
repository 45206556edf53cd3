"""Inputs and outputs that stand for any number of arrays."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from helpers.calls import message, prepare_any, run_any
from helpers.reference import reference

from gradkern import ArgumentError, DTypeError, GradkernError, OutputError

RANDOM = np.random.default_rng(0)
A, B, C = (RANDOM.standard_normal(each).astype(np.float32) for each in ((3, 4), (140_000,), (2, 3, 5)))


def test_each_array_has_sizes_of_its_own_and_outputs_are_as_many() -> None:
    norm = run_any("ReduceAllL2", A, B.reshape(2, -1).T, C).Y  # the second in another order of memory
    np.testing.assert_allclose(norm, reference("ReduceAllL2", {"X": A, "X_1": B, "X_2": C})["Y"], rtol=1e-6)
    assert norm.tobytes() == run_any("ReduceAllL2", X=A, X_2=C, X_1=B.reshape(2, -1).T).Y.tobytes()
    assert [bool(run_any("IsAllFinite", A, each).output) for each in (C, C * np.nan)] == [True, False]
    results = run_any("MixedPrecisionScale", 2.0, A, B, C, to="float16")
    for one, two in zip(results, (A, B, C), strict=True):
        np.testing.assert_array_equal(one, (2 * two).astype(np.float16))
    again = pickle.loads(pickle.dumps(results))
    assert again._fields == ("Y", "Y_1", "Y_2")
    fused = run_any("MixedPrecisionScale", 2.0, A, B, C, to="float16", fuse_outputs=1)
    np.testing.assert_array_equal(fused.Y, np.concatenate([each.ravel() for each in results]))


def test_a_plan_is_for_as_many_and_an_output_may_be_its_own_input() -> None:
    plan = pickle.loads(pickle.dumps(prepare_any("MixedPrecisionScale", np.float32(2), A, B)))
    np.testing.assert_array_equal(plan(np.float32(2), A, B).Y_1, 2 * B)
    assert message(ArgumentError, plan, np.float32(2), A, B, C).endswith("4 inputs given; it takes 3: S, X, X_1")
    b = B.copy()
    assert run_any("MixedPrecisionScale", 2.0, A, b, out={"Y_1": b}).Y_1 is b
    np.testing.assert_array_equal(b, 2 * B)


@pytest.mark.parametrize(
    ("error", "arrays", "named", "text"),
    [
        (ArgumentError, (), {}, "input X missing; it takes S, X"),
        (ArgumentError, (A,), {"X_2": B}, "input X_1 missing; it takes S, X, X_1, X_2"),
        (ArgumentError, (A,), {"X_999999": B}, "unknown argument 'X_999999'"),
        (DTypeError, (A, B.astype(np.float64)), {}, "input X_1 has type float64, but input X has float32"),
        (ArgumentError, (A, B), {"outputs": "Y"}, "output Y_1 is not optional"),
        (ArgumentError, (A, B), {"fuse_outputs": 1, "outputs": ("Y", "Y_1")}, "unknown output 'Y_1'"),
        (OutputError, (A, B), {"fuse_outputs": 1, "out": {"Y": B}}, "out Y overlaps input X_1|out Y is the array"),
    ],
)
def test_what_does_not_fit_is_named(
    error: type[GradkernError], arrays: tuple[Any, ...], named: dict[str, Any], text: str
) -> None:
    found = message(error, run_any, "MixedPrecisionScale", 2.0, *arrays, **named)
    assert any(each in found for each in text.split("|"))
