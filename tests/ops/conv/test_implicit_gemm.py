"""ConvGrad by the implicit GEMM on the CPU: against the float64 formula, in many slices, and where X is infinite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern
from gradkern.cpu import threads
from gradkern.ops.conv.cpu import implicit_gemm
from gradkern.policy import PolicyFields

random = np.random.default_rng(0)
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one axis, groups": ((3, 4, 21), (8, 2, 4), {"group": 2, "strides": [2], "pads": [3, 1]}),
    "three axes": ((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), {"dilations": [1, 3, 2], "pads": [0, 2, 1, 1, 0, 3]}),
    "stride beyond the kernel": ((2, 3, 11, 10), (4, 3, 2, 2), {"strides": [3, 4]}),
    "taps of a short axis have rows of their own": ((2, 9, 2, 40), (70, 9, 3, 3), {"pads": [1] * 4}),
    "sums of several chunks": ((1, 50, 6, 6), (20, 50, 3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "pads beyond the kernel": ((2, 6, 5, 5), (6, 6, 2, 2), {"pads": [7, 5, 6, 8]}),
}
PIN: PolicyFields = {"kernel": "implicit_gemm"}


def arrays(name: str, dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
    X, W, attributes = CASES[name]
    inputs = {key: random.standard_normal(shape).astype(dtype) for key, shape in (("X", X), ("W", W))}
    Y = gradkern.run("Conv", **inputs, **attributes).Y
    return {"dY": random.standard_normal(Y.shape).astype(dtype), **inputs}, attributes


@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(d, marks=pytest.mark.thorough) for d in ("float64", "float16", "bfloat16"))]
)
def test_the_gradients_are_those_of_the_formula(dtype: str) -> None:
    for name in CASES:
        inputs, attributes = arrays(name, dtype)
        expected = reference("ConvGrad", inputs, attributes)
        found = gradkern.run("ConvGrad", **inputs, **attributes, policy=PIN)
        for output in ("dX", "dW"):
            assert_close("ConvGrad", output, getattr(found, output), expected[output])


def test_slices_and_threads_leave_the_bits_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    X, W, dY = (
        random.standard_normal(shape, np.float32) for shape in ((6, 20, 12, 12), (10, 20, 3, 3), (6, 10, 10, 10))
    )
    whole = gradkern.run("ConvGrad", dY, X, W, policy=PIN)
    plan = gradkern.prepare("ConvGrad", dY, X, W, policy=PIN)
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    spread = plan(dY, X, W)
    for output in ("dX", "dW"):
        np.testing.assert_array_equal(getattr(spread, output), getattr(whole, output))
    monkeypatch.setattr(implicit_gemm, "SLICE_BYTES", 1)
    sliced = gradkern.prepare("ConvGrad", dY, X, W, policy={**PIN, "workspace_limit": 1 << 28})
    assert sliced.scratch < plan.scratch
    np.testing.assert_array_equal(sliced(dY, X, W).dX, whole.dX)
    assert_close("ConvGrad", "dW", sliced(dY, X, W).dW, whole.dW.astype(np.float64))


@pytest.mark.parametrize("kernel", ["implicit_gemm", "direct"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_infinities_reach_only_the_weights_that_see_them(kernel: str, dtype: str) -> None:
    """As in the sums of the formula, where X continues as zeros: the kernels' own zeros between lines do not count."""
    attributes: dict[str, Any] = {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": 2}
    inputs = {
        "dY": random.standard_normal((2, 4, 4, 4)),
        "X": random.standard_normal((2, 4, 6, 5)),
        "W": random.standard_normal((4, 2, 3, 3)),
    }
    inputs = {name: array.astype(dtype) for name, array in inputs.items()}
    for name, place in (("X", (1, 1, 0, 4)), ("X", (0, 3, 5, 0)), ("dY", (1, 2, 0, 3)), ("dY", (0, 1, 2, 1))):
        given = {key: array.copy() for key, array in inputs.items()}
        given[name][place] = np.inf
        found = gradkern.run("ConvGrad", **given, **attributes, outputs=["dW"], policy={"kernel": kernel}).dW
        expected = reference("ConvGrad", given, attributes)["dW"]
        finite = np.isfinite(expected)
        assert not finite.all()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_array_equal(found[~finite], expected[~finite])
        assert_close("ConvGrad", "dW", found[finite], expected[finite])
