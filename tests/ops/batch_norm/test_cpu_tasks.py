"""However the CPU shares the channels out, results are those of the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern
from gradkern.cpu.runs import Runs

SHARED_OUT = {  # the shape, and whether a task has whole channels
    (4, 23, 7, 7): True,
    (2, 1, 5): True,
    (64, 60, 28, 28): True,
    (40, 3, 200, 200): False,
    (300, 20, 30, 31): False,
}


@pytest.mark.parametrize(("shape", "whole"), SHARED_OUT.items(), ids=str)
@pytest.mark.parametrize("outputs", [("dX", "dScale", "dBias"), ("dScale",)], ids=" ".join)
def test_gradients_and_statistics(shape: tuple[int, ...], whole: bool, outputs: tuple[str, ...]) -> None:
    runs = Runs.of(shape, [axis == 1 for axis in range(len(shape))])
    assert runs.by_channel(8).whole_channels == whole
    random = np.random.default_rng(0)
    X, dY = (random.standard_normal(shape, dtype=np.float32) + 3 for _ in range(2))
    scale, nothing = random.standard_normal(shape[1], dtype=np.float32), np.zeros(shape[1], np.float32)

    forward = gradkern.run(
        "BatchNormalization", X, scale, nothing, nothing, nothing, outputs=["saved_mean", "saved_inv_std"]
    )
    others, wide = tuple(axis for axis in range(len(shape)) if axis != 1), X.astype(np.float64)
    deviation = np.sqrt(wide.var(others) + 1e-5)
    np.testing.assert_allclose(forward.saved_mean, wide.mean(others), rtol=2e-7)
    np.testing.assert_allclose(forward.saved_inv_std, 1 / deviation, rtol=2e-7)

    saved = {"saved_mean": forward.saved_mean, "saved_inv_std": forward.saved_inv_std}
    inputs: dict[str, Any] = {"dY": dY, "X": X, "Scale": scale, **saved}
    results = run_any("BatchNormalizationGrad", **inputs, outputs=outputs)
    expected = reference("BatchNormalizationGrad", inputs)
    for name in outputs:
        assert_close("BatchNormalizationGrad", name, getattr(results, name), np.asarray(expected[name]))


@pytest.mark.parametrize("unit", [1e-30, 1e30])
@pytest.mark.parametrize("shape", [(4, 23, 7, 7), (40, 3, 200, 200), (300, 24)], ids=str)
def test_the_unit_of_the_data_does_not_matter(shape: tuple[int, ...], unit: float) -> None:
    random = np.random.default_rng(0)
    X, dY = (random.standard_normal(shape, dtype=np.float32) for _ in range(2))
    scale, mean = random.standard_normal((2, shape[1]), dtype=np.float32)
    inputs: dict[str, Any] = {
        "dY": dY * np.float32(1e-8),
        "X": X * np.float32(unit),
        "Scale": scale,
        "saved_mean": mean * np.float32(unit),
        "saved_inv_std": (np.abs(scale) + 1) / np.float32(unit),
    }
    results = run_any("BatchNormalizationGrad", **inputs, outputs=("dScale", "dBias"))
    expected = reference("BatchNormalizationGrad", inputs)
    for name in ("dScale", "dBias"):
        assert_close("BatchNormalizationGrad", name, getattr(results, name), np.asarray(expected[name]))
