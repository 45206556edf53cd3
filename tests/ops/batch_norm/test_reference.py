"""Single elements of a batch norm's gradients are those of the whole."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.reference import reference

from gradkern.call import Tensor
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.ops.batch_norm.cuda.reference import elements

INPUTS = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")


@pytest.mark.parametrize("outputs", [("dX", "dScale", "dBias"), ("dScale", "dBias"), ("dBias",)], ids=" ".join)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (6, 5), (2, 3, 4, 2, 3)], ids=str)
def test_every_element_is_that_of_the_formula(shape: tuple[int, ...], dtype: str, outputs: tuple[str, ...]) -> None:
    random = np.random.default_rng(1)
    inputs = {
        name: (random.standard_normal(shape if name in ("dY", "X") else shape[1:2]) + 2).astype(dtype)
        for name in INPUTS
    }
    expected = reference("BatchNormalizationGrad", inputs)
    tensors: Any = {name: Tensor(array.dtype, array.shape, array.strides, 16) for name, array in inputs.items()}
    of = {"dX": "X", "dScale": "Scale", "dBias": "Scale"}
    problem = Problem(**tensors, **{name: tensors[of[name]] for name in outputs})
    exact = [np.asarray(expected[name]) for name in outputs]
    places = tuple(np.array(list(np.ndindex(each.shape))) for each in exact)
    for found, each in zip(elements(problem, tuple(inputs.values()), places), exact, strict=True):
        np.testing.assert_allclose(found, each.ravel(), rtol=1e-10, atol=1e-10 * np.abs(each).max())
