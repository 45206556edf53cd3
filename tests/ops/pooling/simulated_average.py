"""The kernel of average pools with small windows under the CUDA simulator, against the terms that axis maps list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.reference import reference
from helpers.simulate_launch import simulate
from helpers.tolerance import assert_close

from gradkern.ops.pooling.cuda.plan import plan

POOLS: list[tuple[Any, Any, Any, Any, Any, int, int | None]] = [
    # shape, kernel, strides, pads, dilations, count_include_pad, divisor
    ((2, 3, 8, 16), (3, 3), (2, 2), (1, 1), (1, 1), 0, None),
    ((1, 8, 5, 7), (2, 3), (2, 1), (1, 0), (1, 2), 1, None),
    ((3, 2, 16), (4,), (1,), (2,), (1,), 0, 3),
    ((1, 4, 3, 4, 5), (2, 2, 3), (2, 2, 2), (1, 0, 1), (1, 2, 1), 0, None),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("pool", "dtype"), [*zip(POOLS, ("bfloat16", "float32", "float64", "float16"), strict=True)])
def test_a_gradient_is_that_of_the_formulas(pool: Any, dtype: str, last: bool) -> None:
    shape, kernel, strides, pads, dilations, padded, divisor = pool
    sizes = zip(shape[2:], kernel, strides, pads, dilations, strict=True)
    out = (*shape[:2], *((x + 2 * p - (k - 1) * d - 1) // s + 1 for x, k, s, p, d in sizes))
    given = {"kernel_shape": kernel, "strides": strides, "pads": (*pads, *pads), "dilations": dilations}
    given |= {"count_include_pad": padded, "divisor_override": divisor}
    dY = {"dY": np.random.default_rng(0).standard_normal(out).astype(dtype)}
    axes = {"spatial": shape[2:], "out": out[2:]}
    found, name = simulate(plan, "AveragePoolGrad", dY, {"dX": (shape, dtype)}, given, axes, last)
    assert "average" in name.split("grad")[1]
    expected = reference("AveragePoolGrad", dY, {**given, "input_size": shape[2:]})
    assert_close("AveragePoolGrad", "dX", found["dX"], expected["dX"])
