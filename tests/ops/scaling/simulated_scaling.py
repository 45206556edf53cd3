"""The kernels of products with numbers under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.reference import reference
from helpers.simulate_elementwise import simulate
from helpers.tolerance import assert_close

b, h, f, d = "bfloat16", "float16", "float32", "float64"
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("dtype", "inputs", "size"), [(b, 2, 300), (h, 3, 7), (f, 3, 129), (d, 2, 33)])
def test_sums_of_two_and_three_products(dtype: str, inputs: int, size: int) -> None:
    arrays = {f"input_{n}": RANDOM.standard_normal((1, size)).astype(dtype) for n in range(inputs)}
    scales: dict[str, Any] = {f"scale_{n}": each for n, each in enumerate((1.5, -0.3, 1e-3)[:inputs])}
    expected = reference("ScaledSum", arrays, scales)["output"]
    for in_place in ({}, {"input_1": "output"}):
        assert_close("ScaledSum", "output", simulate("ScaledSum", arrays, in_place, **scales)["output"], expected)


@pytest.mark.parametrize("outputs", [["output_0", "output_1", "output_2"], ["output_2"], ["output_0", "output_1"]])
def test_several_products_of_one_array(outputs: list[str]) -> None:
    data = {"input": RANDOM.standard_normal((1, 130)).astype(h)}
    scales: dict[str, Any] = {"scale_0": 2.0, "scale_1": -0.3, "scale_2": 0.1}
    found = simulate("BatchScale", data, None, outputs=outputs, **scales)
    assert list(found) == outputs
    for name, each in found.items():
        assert_close("BatchScale", name, each, reference("BatchScale", data, scales)[name])


@pytest.mark.parametrize(
    ("dtype", "number"), [(b, np.float16(0.3)), (f, np.int64(-7)), (d, np.float64(1e-100)), (h, 3)]
)
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("down", [0, 1])
def test_a_number_on_the_host_or_the_device(dtype: str, number: np.generic, where: str, down: int) -> None:
    data, kind = RANDOM.standard_normal((1, 67)).astype(dtype), np.asarray(number)
    given = (
        {"input": data} if where == "host" else {"input": data, "scale": kind.astype(f if dtype == h else kind.dtype)}
    )
    named: dict[str, Any] = {"scale": number} if where == "host" else {}
    expected = reference("Scale", {"input": data, "scale": kind}, {"scale_down": down})["output"]
    found = simulate("Scale", given, {"input": "output"}, scale_down=down, **named)["output"]
    assert_close("Scale", "output", found, expected)


@pytest.mark.parametrize(("source", "target"), [(f, b), (h, f), (b, h)])
def test_products_in_another_type(source: str, target: str) -> None:
    X, S = RANDOM.standard_normal((1, 75)).astype(source), np.float32(1024)
    expected = reference("MixedPrecisionScale", {"X": X, "S": S})["Y"]
    assert_close("MixedPrecisionScale", "Y", simulate("MixedPrecisionScale", {"X": X}, S=S, to=target)["Y"], expected)


@pytest.mark.parametrize("fuse_outputs", [0, 1])
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("sizes", [((75,), (0,), (3, 8), ()), ((5,), *((64,), (2, 3)) * 20)])
def test_products_of_several_arrays_apart_or_in_one(fuse_outputs: int, where: str, sizes: Any) -> None:
    X = {f"X_{n}" if n else "X": np.asarray(RANDOM.standard_normal(each)).astype(h) for n, each in enumerate(sizes)}
    S = np.asarray(np.float32(1024))
    expected = reference("MixedPrecisionScale", {"S": S, **X}, {"fuse_outputs": fuse_outputs})
    given = {"S": S, **X} if where == "device" else X
    named: dict[str, Any] = {"S": S} if where == "host" else {}
    found = simulate("MixedPrecisionScale", given, to=f, fuse_outputs=fuse_outputs, **named)
    assert found.keys() == expected.keys()
    for name, each in found.items():
        assert_close("MixedPrecisionScale", name.partition("_")[0], each, expected[name])
