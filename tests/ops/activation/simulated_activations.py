"""The kernels of activations' gradients under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import simulated
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern.cuda.device_code.columns import bits_of
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes, configs
from gradkern.ops.activation.cuda.kernel import build

b, h, f, d = "bfloat16", "float16", "float32", "float64"
NAMES = {"GeluGrad": "X", "FastGeluGrad": "X", "QuickGeluGrad": "X", "ReluGrad": "X"}
NAMES |= {"LeakyReluGrad": "Y", "SigmoidGrad": "Y", "TanhGrad": "Y"}
NAMES |= {"DmlActivationReluGrad": "Input", "DmlElementWiseClipGrad": "Input"}
NUMBERS: dict[str, dict[str, float]] = {
    "QuickGeluGrad": {"alpha": 1.702},
    "LeakyReluGrad": {"alpha": 0.01},
    "DmlElementWiseClipGrad": {"Min": -0.75, "Max": 1.5},
}


def check(operator: str, size: int, dtype: str, offset: int = 0, in_place: str = "", **changes: Any) -> None:
    random = np.random.default_rng(0)
    dY, seen = random.standard_normal((2, 1, size))
    seen = 1 / (1 + np.exp(-seen)) if operator == "SigmoidGrad" else 3 * seen
    inputs = {"dY": dY.astype(dtype), NAMES[operator]: seen.astype(dtype)}
    if operator.startswith("Dml"):
        inputs = {"Input": np.round(4 * inputs["Input"]) / 4, "InputGradient": inputs["dY"]}  # at the limits, too
    held = [hold(each, offset=offset) for each in inputs.values()]
    output = held[list(inputs).index(in_place)] if in_place else Held((1, size), dtype, offset=offset)
    numbers = NUMBERS.get(operator, {})
    types = ElementwiseTypes(operator, (dtype, dtype), (dtype,), numbers=("",) * len(numbers))
    config: ElementwiseConfig = replace(next(configs(types, offset & -offset if offset else 16)), threads=32, **changes)
    addresses = (held[0].address, held[1].address, 0, output.address, 0, 0)
    bits = [bits_of(each, types.compute) for each in (*numbers.values(), 0.0, 0.0, 0.0)][:3]
    arguments = tuple(np.int64(each) for each in (*addresses, *bits, size, *[0] * 9))
    simulated.launch(build(types, config), -(-size // config.block), config.threads, 1, 0, arguments)
    for each in (*held, output):
        each.memory.check()
    (expected,) = reference(operator, inputs, numbers).values()
    assert_close(operator, "dX", np.array(output.array), expected)


@pytest.mark.parametrize("operator", NAMES)
@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_every_operator_in_every_type(operator: str, dtype: str) -> None:
    check(operator, 1029, dtype)


@pytest.mark.parametrize("size", [1, 7, 8, 255, 2048, 2055])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_any_size_and_alignment(size: int, offset: int) -> None:
    check("TanhGrad", size, b, offset)


@pytest.mark.parametrize("in_place", ["dY", "X"])
def test_over_either_input(in_place: str) -> None:
    check("GeluGrad", 777, f, in_place=in_place)


@pytest.mark.parametrize("dtype", [b, f, d])
def test_where_alpha_x_is_no_number_of_the_type_the_slope_is_0_or_1(dtype: str) -> None:
    types = ElementwiseTypes("QuickGeluGrad", (dtype, dtype), (dtype,), numbers=("",))
    largest = float(ml_dtypes.finfo(dtype).max)
    X = np.array([[-largest, largest, -np.inf, np.inf, np.nan]]).astype(dtype)
    held, output = [hold(np.ones_like(X)), hold(X)], Held((1, 5), dtype)
    config = replace(next(configs(types, 16)), threads=32)
    places = (held[0].address, held[1].address, 0, output.address, 0, 0, bits_of(1.702, types.compute), 0, 0)
    arguments = tuple(np.int64(each) for each in (*places, 5, *[0] * 9))
    simulated.launch(build(types, config), 1, 32, 1, 0, arguments)
    np.testing.assert_array_equal(np.array(output.array, float), [[0, 1, 0, 1, np.nan]])


def test_infinities_and_nan_go_through_as_the_formula_has_them() -> None:
    types = ElementwiseTypes("ReluGrad", (f, f), (f,))
    dY = np.array([[np.inf, np.nan, 1, 2, np.inf]], f)
    X = np.array([[-1, -1, np.nan, 3, 1]], f)
    held, output = [hold(dY), hold(X)], Held((1, 5), f)
    config = replace(next(configs(types, 16)), threads=32)
    arguments = tuple(
        np.int64(each) for each in (held[0].address, held[1].address, 0, output.address, *[0] * 5, 5, *[0] * 9)
    )
    simulated.launch(build(types, config), 1, 32, 1, 0, arguments)
    np.testing.assert_array_equal(output.array, [[0, 0, 0, 2, np.inf]])
