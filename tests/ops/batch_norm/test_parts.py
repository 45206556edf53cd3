"""Batch norm over a batch in parts, forward and backward, by the operators that synchronised batch norm is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import message, run_any
from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

import gradkern

pytestmark = pytest.mark.thorough

STATISTICS, MERGE, LAST = (f"BatchNormalization{each}" for each in ("Statistics", "MergeStatistics", "FromStatistics"))
SUMS = "BatchNormalizationGradSums"
TYPES = gradkern.operators()[LAST].combinations


def in_order(array: np.ndarray, order: str) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1) if order == "channels last" else array


@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(types.values()))
@pytest.mark.parametrize("order", ["C", "channels last"])
@pytest.mark.parametrize("sizes", [[8], [5, 3], [1, 0, 7]], ids=str)
def test_parts_have_the_output_of_the_whole(types: dict[str, str], order: str, sizes: list[int]) -> None:
    random = np.random.default_rng(0)
    X = (random.standard_normal((8, 6, 5, 4)) + 3).astype(types["T"])
    scale, B = (random.standard_normal(6).astype(types["T1"]) for _ in range(2))
    old = [np.ones(6, types["T2"]), np.full(6, 2, types["T2"])]
    parts = [in_order(each, order) for each in np.split(X, np.cumsum(sizes)[:-1])]
    every = np.stack([run_any(STATISTICS, each).part_statistics for each in parts])
    merged = run_any(MERGE, every, *old, outputs=["statistics", "running_mean", "running_var"], momentum=0.75)
    mean, inv_std = merged.statistics[:6], merged.statistics[6:12]
    assert merged.statistics[-1] == 8 * 5 * 4
    Y = np.concatenate([run_any(LAST, each, scale, B, mean, inv_std).Y for each in parts])
    given = {"X": X, "scale": scale, "B": B, "input_mean": old[0], "input_var": old[1]}
    expected = reference("BatchNormalization", given, {"momentum": 0.75, "unbiased": 1})
    assert_close(LAST, "Y", Y, expected["Y"])
    assert_elements_close(LAST, "Y", Y, expected["Y"])
    for name in ("running_mean", "running_var"):
        assert_close(MERGE, name, getattr(merged, name), expected[name])


def test_running_statistics_are_moved_in_place_and_towards_nothing_of_nothing() -> None:
    old = {"input_mean": np.ones(3, np.float32), "input_var": np.full(3, 2, np.float32)}
    out = {"running_mean": old["input_mean"], "running_var": old["input_var"]}
    found = run_any(MERGE, np.zeros((2, 7), np.float32), **old, outputs=list(out), out=out, momentum=0.75)
    assert found.running_mean is old["input_mean"]
    np.testing.assert_array_equal(old["input_mean"], np.full(3, 0.75, np.float32))  # as PyTorch's SyncBatchNorm
    np.testing.assert_array_equal(old["input_var"], np.full(3, 1.5, np.float32))


def test_running_statistics_of_other_channels_are_refused() -> None:
    parts, three = np.zeros((2, 9), np.float32), np.ones(3, np.float32)
    assert message(gradkern.ShapeError, gradkern.run, MERGE, parts, three, three) == (
        "BatchNormalizationMergeStatistics: input part_statistics has 9 numbers of each part; expected 7, as "
        "input_mean and input_var have 3 channels"
    )


def test_the_message_has_the_sums_one_behind_the_other() -> None:
    random = np.random.default_rng(1)
    dY, X = random.standard_normal((2, 4, 3, 5)).astype(np.float32)
    mean, inv_std = X.mean((0, 2)), 1 / X.std((0, 2))
    every: Any = run_any(SUMS, dY, X, mean, inv_std, outputs=["dScale", "dBias", "sums"])
    np.testing.assert_array_equal(every.sums, np.concatenate([every.dScale, every.dBias]))
    alone = run_any(SUMS, dY, X, mean, inv_std, outputs="sums")
    np.testing.assert_array_equal(alone.sums, every.sums)
