"""The gradients of activations on the CPU where inputs are as large as their type can have them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.calls import run_any


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("operator", ["GeluGrad", "FastGeluGrad", "QuickGeluGrad"])
def test_the_slope_of_the_largest_inputs_is_0_or_1(operator: str, dtype: str) -> None:
    largest = float(ml_dtypes.finfo(dtype).max)
    X = np.array([-largest, -largest / 8, largest / 8, largest, np.inf, -np.inf, np.nan]).astype(dtype)
    found: Any = run_any(operator, np.ones_like(X), X)[0]
    np.testing.assert_array_equal(found.astype(float), [0, 0, 1, 1, 1, 0, np.nan])
