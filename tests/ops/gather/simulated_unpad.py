"""The kernel of FlattenAndUnpad under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.simulate_elementwise import simulate


@pytest.mark.parametrize(("dtype", "columns"), [("bfloat16", 24), ("float32", 3), ("int64", 1), ("float16", 7)])
def test_rows_are_copied_and_those_out_of_range_are_0(dtype: str, columns: int) -> None:
    data = np.random.default_rng(0).integers(-9, 9, (3, 5, columns)).astype(dtype)
    indices = np.array([14, 0, 15, 7, -1, 7, 1 << 33])
    found = simulate("FlattenAndUnpad", {"input": data, "indices": indices})["output"]
    expected = data.reshape(15, columns)[np.clip(indices, 0, 14)]
    expected[[2, 4, 6]] = 0
    np.testing.assert_array_equal(found, expected)
