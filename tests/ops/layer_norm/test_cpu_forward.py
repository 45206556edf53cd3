"""The layer norm on the CPU adds in float32 and is as exact as in float64, over the whole range of float32."""

from __future__ import annotations

import numpy as np
import pytest

import gradkern


@pytest.mark.parametrize("columns", [5, 1000, 5000])
@pytest.mark.parametrize("size", [1e-22, 1.0, 1e22, 1e37])
@pytest.mark.parametrize("level", [0.0, 5.0, 1e4])
def test_rows_of_every_size_and_level(level: float, size: float, columns: int) -> None:
    random = np.random.default_rng(0)
    size = min(size, 1e33) if level > 5 else size
    X = (size * (random.uniform(-1, 1, (7, columns)) + level)).astype(np.float32)
    ones, zeros = np.ones(columns, np.float32), np.zeros(columns, np.float32)
    Y, mean, inv_std = gradkern.run("LayerNormalization", X, ones, zeros, epsilon=1e-60)

    wide = X.astype(np.float64)
    exact = wide.mean(1, keepdims=True)
    deviation = wide.std(1, keepdims=True)
    np.testing.assert_allclose(mean.reshape(-1, 1), exact, rtol=1e-7, atol=1e-7 * float(deviation.max()))
    np.testing.assert_allclose(inv_std.reshape(-1, 1), 1 / deviation, rtol=1e-6)
    of_rounded_mean = 2.0**-24 * np.abs(exact) / deviation
    np.testing.assert_allclose(Y, (wide - exact) / deviation, rtol=1e-6, atol=4e-7 + float(of_rounded_mean.max()))
