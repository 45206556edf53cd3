"""The kernel of resizing by whole factors under the CUDA simulator, against ONNX's formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.reference import reference
from helpers.simulate_launch import simulate
from helpers.tolerance import assert_close

from gradkern.ops.resize.cuda.plan import plan

RESIZED: list[tuple[tuple[int, ...], tuple[int, ...], str, str]] = [  # shape of dX, factors, mode, type
    ((2, 16, 3, 4), (2, 2), "linear half_pixel", "bfloat16"),
    ((1, 8, 3, 8), (2, 2), "nearest half_pixel", "bfloat16"),
    ((2, 2, 2, 3, 4), (2, 2, 2), "linear half_pixel_symmetric", "float32"),
    ((1, 3, 3, 2, 5), (1, 3, 2), "nearest asymmetric", "float16"),
    ((2, 4, 1, 5), (4, 3), "linear pytorch_half_pixel", "float16"),
    ((1, 2, 3, 2), (1, 8), "linear half_pixel", "bfloat16"),
    ((1, 5, 7), (3,), "linear half_pixel", "float64"),
    ((1, 3, 1, 1, 1), (2, 1, 3), "linear half_pixel", "float32"),
    ((1, 2, 3, 4), (2, 2), "linear align_corners", "float32"),
    ((1, 2, 3, 4), (2, 2), "linear asymmetric", "float32"),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("shape", "factors", "way", "dtype"), RESIZED)
def test_a_gradient_is_that_of_the_formulas(shape: Any, factors: Any, way: str, dtype: str, last: bool) -> None:
    """Where coordinates are no centres of elements, by the kernel of any resizing."""
    mode, transformation = way.split()
    out = tuple(size * factor for size, factor in zip(shape[2:], factors, strict=True))
    dY = {"dY": np.random.default_rng(0).standard_normal((*shape[:2], *out)).astype(dtype)}
    given = {"mode": mode, "coordinate_transformation_mode": transformation, "cubic_coeff_a": -0.75, "antialias": 0}
    given |= {"exclude_outside": 0, "nearest_mode": "floor" if transformation == "asymmetric" else "round_prefer_floor"}
    axes = {"spatial": shape[2:], "out": out}
    found, name = simulate(plan, "ResizeGrad", dY, {"dX": (shape, dtype)}, given, axes, last)
    whole = "half_pixel" in way or way == "nearest asymmetric"
    assert ("_by_" in name) == whole
    expected = reference("ResizeGrad", dY, {**given, "input_size": shape[2:]})
    assert_close("ResizeGrad", "dX", found["dX"], expected["dX"])
