"""The row block with toy operators, under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.guarded import Guarded
from helpers.held import Held, hold
from helpers.simulate_rows import run
from helpers.toy_rows import CROSS_ENTROPY, EPSILON, RMS_NORM, THREE_INPUTS, build

from gradkern.kernels.rows.config import RowsConfig, configs
from gradkern.kernels.rows.problem import RowsTypes

b, f, d = "bfloat16", "float32", "float64"
SHAPES = [((5, 40), 1), ((3, 261), 1), ((2, 3000), 1), ((3, 21, 16), 1), ((2, 70, 5), 1)]
VARIANTS: list[dict[str, Any]] = [{}, {"held": False, "vectors": 1}, {"staged": True}]


def first_config(variant: dict[str, Any]) -> Callable[[Any], RowsConfig]:
    def first(problem: Any) -> RowsConfig:
        config = next(configs(problem, (9, 0)))
        if "staged" in variant and (config.inner or problem.width * problem.steps[0] < 16):
            return config
        return replace(config, **variant)

    return first


def vector(values: Any, dtype: str) -> Guarded:
    held = Guarded(np.shape(values), dtype)
    held.array[...] = values
    return held


def along(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(size if n == axis else 1 for n, size in enumerate(shape))


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_norm_with_a_scale_and_its_statistic(shape: tuple[int, ...], axis: int, variant: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    X, scale = random.standard_normal(shape).astype(b), random.standard_normal(shape[axis]).astype(f)
    wide = X.astype(d)
    r = 1 / np.sqrt((wide**2).mean(axis, keepdims=True) + EPSILON)
    types = RowsTypes("Toy", (b,), (b,), parameters=(f,), results=(f,), whole_parameters=True)
    x, y, w, inv_std = hold(X), Held(shape, b), vector(scale, f), Guarded((r.size,), f)
    others = {"parameter_0": w.address, "result_0": inv_std.address}
    run(build(RMS_NORM), types, {"input_0": x}, {"output_0": y}, (axis, axis + 1), first_config(variant), others)
    inv_std.check()
    np.testing.assert_allclose(inv_std.array, r.ravel(), rtol=1e-6)
    expected = wide * scale.reshape(along(shape, axis)) * r
    np.testing.assert_allclose(y.array.astype(d), expected, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_cross_entropy_with_its_label(shape: tuple[int, ...], axis: int, variant: dict[str, Any]) -> None:
    """Two outputs of two types; the logarithm of the row's sum is its second result."""
    random = np.random.default_rng(1)
    X = random.standard_normal(shape).astype(f) * 3
    rows = X.size // shape[axis]
    labels, weights = random.integers(0, shape[axis], rows), random.standard_normal(rows).astype(f)
    wide = np.moveaxis(X.astype(d), axis, -1).reshape(rows, -1)
    logsum = np.log(np.exp(wide).sum(1))
    share = np.exp(wide - logsum[:, None])
    dX = share.copy()
    dX[np.arange(rows), labels] -= 1
    dX *= weights[:, None]
    types = RowsTypes("Toy", (f,), (f, b), scalars=(f, f), results=(f, f), reductions=2)
    held = [vector(labels, f), vector(weights, f), Guarded((rows,), f), Guarded((rows,), f)]
    names = ("scalar_0", "scalar_1", "result_0", "result_1")
    others = {name: each.address for name, each in zip(names, held, strict=True)}
    x, y, z = hold(X), Held(shape, f), Held(shape, b)
    outputs = {"output_0": y, "output_1": z}
    run(build(CROSS_ENTROPY), types, {"input_0": x}, outputs, (axis, axis + 1), first_config(variant), others)
    for each in held:
        each.check()
    np.testing.assert_allclose(held[2].array, wide.max(1))
    np.testing.assert_allclose(held[3].array, logsum, rtol=1e-6)

    def in_rows(array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array.astype(d), axis, -1).reshape(rows, -1)

    np.testing.assert_allclose(in_rows(y.array), dX, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(in_rows(z.array), share, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("variant", [*VARIANTS, {"cluster": 2}], ids=str)
def test_three_inputs_and_three_parameters(shape: tuple[int, ...], axis: int, variant: dict[str, Any]) -> None:
    if "cluster" in variant and (shape[axis] < 3000 or axis < len(shape) - 1):
        pytest.skip("one block has the row")
    random = np.random.default_rng(2)
    kinds, parameter_kinds = (b, f, b), (f, b, f)
    xs = [random.standard_normal(shape).astype(each) for each in kinds]
    ps = [random.standard_normal(shape[axis]).astype(each) for each in parameter_kinds]
    x, p = [each.astype(d) for each in xs], [each.astype(d).reshape(along(shape, axis)) for each in ps]
    totals = [(x[0] * x[1]).sum(axis, keepdims=True), x[2].sum(axis, keepdims=True)]
    expected = x[0] - totals[0] + p[0] * totals[1] + p[1] * x[1] + p[2] * x[2]
    held = {f"input_{n}": hold(each) for n, each in enumerate(xs)}
    vectors = [vector(each, kind) for each, kind in zip(ps, parameter_kinds, strict=True)]
    others = {f"parameter_{n}": each.address for n, each in enumerate(vectors)}
    y = Held(shape, f)
    types = RowsTypes("Toy", kinds, (f,), parameters=parameter_kinds, whole_parameters=True, pairs=True)
    run(build(THREE_INPUTS), types, held, {"output_0": y}, (axis, axis + 1), first_config(variant), others)
    np.testing.assert_allclose(y.array, expected, rtol=1e-5, atol=1e-4 * np.abs(expected).max())
