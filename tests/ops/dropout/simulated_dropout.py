"""The kernels of masks under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.held import hold
from helpers.reference import reference
from helpers.simulate_elementwise import simulate
from helpers.tolerance import assert_close

b, h, f, d = "bfloat16", "float16", "float32", "float64"
RANDOM = np.random.default_rng(0)


def bits_of(mask: np.ndarray) -> np.ndarray:
    """In words, with ones behind the last bit, which nobody may take for elements."""
    padded = np.concatenate([mask.ravel(), np.ones(-mask.size % 32, bool)])
    return np.packbits(padded, bitorder="little").view(np.uint32)


def check(operator: str, shape: tuple[int, ...], dtype: str, how: Any = None, **named: Any) -> None:
    dy, mask = RANDOM.standard_normal(shape).astype(dtype), RANDOM.random(shape) < 0.5
    names = ("dY", "gradient_mask") if operator == "FakeQuantGrad" else ("dy", "mask")
    given: dict[str, np.ndarray] = dict(
        zip(names, (dy, bits_of(mask) if operator.startswith("Bitmask") else mask), strict=True)
    )
    plain = {name: getattr(each, "item", lambda each=each: each)() for name, each in named.items()}
    (expected,) = reference(operator, given, plain).values()
    arrays = {name: hold(each, **(how or {}).get(name, {})) for name, each in given.items()}
    for in_place in ({}, {names[0]: "dX" if operator == "FakeQuantGrad" else "dx"}):
        ((name, found),) = simulate(operator, arrays, in_place, **named).items()
        assert_close(operator, name, found, expected)


@pytest.mark.parametrize("operator", ["DropoutGrad", "BitmaskDropoutGrad", "FakeQuantGrad"])
@pytest.mark.parametrize(("dtype", "size"), [(b, 1029), (h, 7), (f, 515), (d, 257), (b, 1)])
def test_every_type(operator: str, dtype: str, size: int) -> None:
    check(operator, (1, size), dtype)


@pytest.mark.parametrize(
    "how", [{"dy": {"offset": 1}}, {"mask": {"offset": 4}}, {"dy": {"spread": 8}}, {"mask": {"spread": 4}}]
)
def test_masks_that_are_less_aligned_and_rows_at_a_distance(how: Any) -> None:
    check("DropoutGrad", (5, 48), b, how)
    if "mask" not in how:
        check("BitmaskDropoutGrad", (5, 48), b, how)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 1 - 2.0**-24, np.float16(0.3), np.float64(0.75)])
def test_the_ratio_is_an_attribute_or_a_number_on_the_host(ratio: Any) -> None:
    check("DropoutGrad", (1, 70), f, ratio=ratio)


def test_without_training_nothing_is_scaled() -> None:
    check("BitmaskDropoutGrad", (1, 70), f, ratio=0.5, training_mode=False)


def test_what_was_dropped_is_0_whatever_is_there() -> None:
    dy = np.array([[np.inf, np.nan, -np.inf, np.nan, 2]], f)
    mask = np.array([[False, False, True, True, True]])
    for each in (mask, bits_of(mask)):
        operator = "DropoutGrad" if each is mask else "BitmaskDropoutGrad"
        np.testing.assert_array_equal(simulate(operator, {"dy": dy, "mask": each})["dx"], [[0, 0, -np.inf, np.nan, 4]])


@pytest.mark.parametrize(("dtype", "columns", "ratio"), [(b, 96, 0.1), (f, 33, np.float32(0.3)), (d, 7, 0.0)])
def test_softmax_before_dropout(dtype: str, columns: int, ratio: Any) -> None:
    dy, mask = RANDOM.standard_normal((5, columns)).astype(dtype), RANDOM.random((5, columns)) < 0.7
    y = np.exp(RANDOM.standard_normal((5, columns)))
    given = {"dy": dy, "mask": mask, "softmax_y": (y / y.sum(1, keepdims=True)).astype(dtype)}
    expected = reference("SoftmaxDropoutGrad", given, {"axis": 1, "ratio": float(ratio)})["dx"]
    for in_place in ({}, {"softmax_y": "dx"}):
        found = simulate("SoftmaxDropoutGrad", given, in_place, axis=1, ratio=ratio)["dx"]
        assert_close("SoftmaxDropoutGrad", "dx", found, expected)
