"""Where terms of a formula cancel, no element of an input gradient is off by more than a few roundings of the terms.

Nothing is assumed of the data: rows of one column, equal rows, large offsets, numbers of eight powers of ten side by
side, gradients that are constant. Only what overflows on the way is left out.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.reference import FORMULAS, reference
from helpers.tolerance import assert_within_terms
from hypothesis import given
from hypothesis import strategies as st

import gradkern
from gradkern.policy import PolicyFields

pytestmark = pytest.mark.thorough

POINTWISE = 8
"""Roundings allowed where nothing is summed."""
DTYPES = ["float32", "float64", "bfloat16", "float16"]
ROOTS = {"BiasGeluGrad_dX": -0.7517916243, "BiasFastGeluGrad_dX": -0.7524614220}  # where the slope of GELU is 0

PROVIDERS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

shapes = st.tuples(st.integers(1, 40), st.sampled_from([1, 2, 3, 7, 64, 300]))
seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(["normal", "offset", "constant", "wide"])


def wider(operator: str, inputs: dict[str, np.ndarray], output: str) -> np.ndarray:
    """The reference in more than float64: where terms cancel, its own sums would be off as far as the results."""
    widened = {name: each.astype(np.float64).astype(np.longdouble) for name, each in inputs.items()}
    return FORMULAS[operator](**widened)[output]


def values(rng: np.random.Generator, shape: tuple[int, ...], kind: str, dtype: str) -> np.ndarray:
    """Numbers of a kind; those of few exponent bits stay within them."""
    drawn = rng.standard_normal(shape)
    if kind == "offset":
        drawn = 1000 + drawn
    elif kind == "constant":
        drawn = np.full(shape, drawn.flat[0])
    elif kind == "wide":
        drawn *= 10.0 ** rng.integers(-3, 3, shape) if dtype == "float16" else 10.0 ** rng.integers(-4, 4, shape)
    return drawn.astype(dtype)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@given(shape=shapes, seed=seeds, of_data=kinds, of_upstream=kinds)
def test_layer_norms(
    provider: str, dtype: str, shape: tuple[int, int], seed: int, of_data: str, of_upstream: str
) -> None:
    rng = np.random.default_rng(seed)
    X, D = values(rng, shape, of_data, dtype), values(rng, shape, of_upstream, dtype)
    scale, bias = values(rng, shape[1:], of_data, dtype), values(rng, shape[1:], of_data, dtype)
    scale[scale == 0] = 1
    wide = X.astype(np.float64)
    statistics = "float64" if dtype == "float64" else "float32"
    mean = wide.mean(1).astype(statistics)
    r = (1 / np.sqrt(wide.var(1) + 1e-5)).astype(statistics)
    centred = (wide - mean[:, None].astype(np.float64)) * r[:, None]
    rebuilt = (wide - bias.astype(np.float64)) / scale.astype(np.float64)
    calls: dict[str, tuple[dict[str, Any], np.ndarray]] = {
        "LayerNormalizationGrad": ({"X": X, "scale": scale, "mean": mean, "inv_std_dev": r}, centred),
        "SimplifiedLayerNormalizationGrad": ({"X": X, "scale": scale, "inv_std_var": r}, wide * r[:, None]),
        "InvertibleLayerNormalizationGrad": ({"Y": X, "scale": scale, "bias": bias, "inv_std_var": r}, rebuilt),
    }
    for name, (inputs, xh) in calls.items():
        inputs = {"Y_grad": D, **inputs}
        result = run_any(name, **inputs, outputs=["X_grad"], provider=provider).X_grad
        g, xh = np.abs(D.astype(np.float64) * scale.astype(np.float64)), np.abs(xh)
        terms = r[:, None] * (g + g.mean(1, keepdims=True) + xh * (g * xh).mean(1, keepdims=True))
        assert_within_terms(result, wider(name, inputs, "X_grad"), terms)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@given(shape=shapes, seed=seeds, of_data=kinds, of_upstream=kinds, last=st.booleans())
def test_batch_norm(
    provider: Literal["cpu", "cuda"],
    dtype: str,
    shape: tuple[int, int],
    seed: int,
    of_data: str,
    of_upstream: str,
    last: bool,
) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = shape
    X, D = values(rng, (rows, 3, columns), of_data, dtype), values(rng, (rows, 3, columns), of_upstream, dtype)
    if last:
        X, D = (each.transpose(0, 2, 1).copy().transpose(0, 2, 1) for each in (X, D))
    statistics = "float64" if dtype == "float64" else "float32"
    wide = X.astype(np.float64)
    mean = wide.mean((0, 2)).astype(statistics)
    r = (1 / np.sqrt(wide.var((0, 2)) + 1e-5)).astype(statistics)
    inputs = {"dY": D, "X": X, "Scale": values(rng, (3,), of_data, statistics), "saved_mean": mean, "saved_inv_std": r}
    policy: PolicyFields = {"search": "heuristic"}  # of a GPU's kernels the first, and no time for each shape
    result = gradkern.run("BatchNormalizationGrad", **inputs, outputs=["dX"], provider=provider, policy=policy).dX
    gain = np.abs(inputs["Scale"].astype(np.float64) * r)[:, None]
    xh, d = np.abs((wide - mean[:, None].astype(np.float64)) * r[:, None]), np.abs(D.astype(np.float64))
    terms = gain * (d + d.mean((0, 2), keepdims=True) + xh * (d * xh).mean((0, 2), keepdims=True))
    assert_within_terms(result, wider("BatchNormalizationGrad", inputs, "dX"), terms)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(shape=shapes, seed=seeds, of_data=kinds, constant=st.sampled_from([1.0, 0.1, -3e5]))
def test_batch_norm_of_a_constant_gradient_keeps_its_digits_where_channels_are_planes(
    dtype: str, shape: tuple[int, int], seed: int, of_data: str, constant: float
) -> None:
    """What is left is made of the rounding of the statistics alone: a few roundings of it, and float64's of the terms.

    Channels that lie side by side are summed in float32, as 16 bits are: there only the bound above holds.
    """
    rng = np.random.default_rng(seed)
    X = values(rng, (shape[0], 3, 1 + shape[1]), of_data, dtype)
    wide = X.astype(np.float64)
    mean = wide.mean((0, 2)).astype(dtype)
    r = (1 / np.sqrt(wide.var((0, 2)) + 1e-5)).astype(dtype)
    scale = values(rng, (3,), "normal", dtype)
    inputs = {"dY": np.full_like(X, constant), "X": X, "Scale": scale, "saved_mean": mean, "saved_inv_std": r}
    result = gradkern.run("BatchNormalizationGrad", **inputs, outputs=["dX"]).dX
    exact = wider("BatchNormalizationGrad", inputs, "dX")
    xh = np.abs((wide - mean[:, None].astype(np.float64)) * r[:, None])
    gain = np.abs(scale.astype(np.float64) * r)[:, None]
    terms = abs(constant) * gain * (2 + xh * xh.mean((0, 2), keepdims=True))
    bound = 8 * np.finfo(dtype).eps * np.abs(exact) + 40 * np.finfo(np.float64).eps * terms
    assert (np.abs(result - exact) <= bound + np.finfo(dtype).tiny).all()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROOTS)
@given(shape=shapes, seed=seeds, of_data=st.sampled_from(["normal", "offset", "wide", "root"]), of_upstream=kinds)
def test_gelu(
    name: str, dtype: str, provider: str, shape: tuple[int, int], seed: int, of_data: str, of_upstream: str
) -> None:
    rng = np.random.default_rng(seed)
    if of_data == "root":
        X = (ROOTS[name] + 1e-6 * rng.standard_normal(shape)).astype(dtype)
        B = np.zeros(shape[1], dtype)
    else:
        X, B = values(rng, shape, of_data, dtype), values(rng, shape[1:], of_data, dtype)
    inputs = {"dY": values(rng, shape, of_upstream, dtype), "X": X, "B": B}
    result = run_any(name, **inputs, outputs=["dX"], provider=provider).dX
    assert_within_terms(result, reference(name, inputs)["dX"], np.abs(inputs["dY"].astype(np.float64)), POINTWISE)
