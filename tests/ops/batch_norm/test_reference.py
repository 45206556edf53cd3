"""Single elements of a batch norm's gradients are those of the whole."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers import batch_norm_activation as cases
from helpers.reference import reference

from gradkern.call import Tensor
from gradkern.kernels.channels.activation_alpha import with_alpha
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


@pytest.mark.parametrize(
    ("activation", "residual", "second"),
    [
        *[("relu", False, False), ("relu", True, True), ("silu", False, True), ("none", True, True)],
        *[("leaky_relu", False, True), ("leaky_relu", True, False), ("gelu", False, True)],
    ],
)
def test_gradients_behind_an_activation(activation: str, residual: bool, second: bool) -> None:
    case = cases.backward((4, 3, 5, 2), "float64", activation=activation, residual=residual, second=second)
    given: Any = described(case.inputs)
    wanted: Any = {name: given["X" if name in ("dX", "dZ") else "Scale"] for name in case.wanted}
    problem = Problem(**given, **wanted, activation=with_alpha(case.attributes))
    inputs = tuple(case.inputs[name] for name in problem.given)
    found = elements(problem, inputs, everywhere(problem.wanted))
    case.check({name: each.reshape(wanted[name].shape) for name, each in zip(problem.wanted, found, strict=True)})


def described(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: Tensor(array.dtype, array.shape, array.strides, 16) for name, array in arrays.items()}


def everywhere(tensors: dict[str, Tensor]) -> tuple[np.ndarray, ...]:
    """The places of every element."""
    return tuple(np.array(list(np.ndindex(each.shape))) for each in tensors.values())
