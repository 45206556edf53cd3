"""The cases of ONNX Runtime's own tests of these gradients: its shapes, attributes, types and literal numbers.

All are from microsoft/onnxruntime, orttraining/orttraining/test/, in the files and tests that are named beside them.
Where it compares two of its providers on random numbers, the numbers here are random from the same range, and what is
compared with is float64 mathematics; where it differentiates numerically, so is it done here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import forward
from helpers.calls import run_any
from helpers.onnxruntime_conv import CASES
from helpers.reference import directional_difference, reference
from helpers.terms import terms
from helpers.tolerance import assert_within_terms

import gradkern

LAYER, SIMPLIFIED, INVERTIBLE = (f"{name}LayerNormalizationGrad" for name in ("", "Simplified", "Invertible"))
EXACT, FAST = "BiasGeluGrad_dX", "BiasFastGeluGrad_dX"


def checked(operator: str, inputs: dict[str, np.ndarray], attributes: dict[str, Any] | None = None) -> Any:
    """The results of a call, which agree with float64 mathematics."""
    result = run_any(operator, **inputs, **(attributes or {}))
    exact, of = reference(operator, inputs, attributes), terms(operator, inputs, attributes)
    for name, each in result._asdict().items():
        if each is not None:
            assert_within_terms(each, exact[name], of[name])
    return result


def differentiated(loss: Any, array: np.ndarray, gradient: np.ndarray) -> None:
    """A gradient in float64 is the rate at which the loss changes, along itself and along another direction."""
    for direction in (gradient, np.random.default_rng(7).standard_normal(array.shape)):
        rate = directional_difference(loss, array, direction)
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert abs(rate - (gradient * direction).sum()) <= 1e-9 * scale + 1e-9


# --- training_ops/cuda/conv_grad_test.cc ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_convolutions_have_the_numbers_of_onnx_runtime(name: str, dtype: str) -> None:
    case = CASES[name]
    inputs = {"dY": np.ones(case.out), "X": case.X, "W": case.W}
    result = checked("ConvGrad", {key: each.astype(dtype) for key, each in inputs.items()}, case.attributes)
    # Each of a result's terms was rounded to four decimals, as was the result, and in float16 to eleven bits.
    rounded = 2.0**-11 if dtype == "float16" else 0.0
    of = terms("ConvGrad", inputs, case.attributes)
    number = terms("ConvGrad", {key: np.ones_like(each) for key, each in inputs.items()}, case.attributes)
    for key, literal in (("dX", case.dX), ("dW", case.dW), ("dB", case.dB)):
        if literal is not None:
            off = np.abs(getattr(result, key).astype(np.float64) - literal)
            assert (off <= 0.51e-4 * (1 + number[key]) + 2 * rounded * of[key]).all()


# --- gradient/gradient_ops_test.cc, GradientCheckerTest.ConvGrad ------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "W", "Y", "attributes"),
    [
        ((2, 2, 5), (2, 2, 3), (2, 2, 5), {"pads": [1, 1]}),
        ((2, 1, 7), (1, 1, 3), (2, 1, 4), {"pads": [1, 1], "strides": [2]}),
        ((2, 1, 5), (1, 1, 1), (2, 1, 7), {"pads": [1, 1]}),
        ((2, 1, 5), (1, 1, 1), (2, 1, 5), {"pads": [0, 0]}),
        ((1, 1, 3, 3), (1, 1, 3, 3), (1, 1, 3, 3), {"pads": [1] * 4}),
        ((2, 1, 5, 5), (1, 1, 3, 3), (2, 1, 5, 5), {"pads": [1] * 4}),
        ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 3, 3), {"pads": [1] * 4}),
        ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), {"pads": [0] * 4}),
        ((2, 1, 7, 5), (1, 1, 3, 3), (2, 1, 4, 3), {"pads": [1] * 4, "strides": [2, 2]}),
        ((2, 1, 5, 5), (1, 1, 3, 3), (2, 1, 1, 1), {"pads": [0] * 4, "dilations": [2, 2]}),
        ((2, 1, 7, 5), (1, 1, 3, 3), (2, 1, 5, 3), {"pads": [1] * 4, "dilations": [2, 2]}),
        ((2, 1, 5, 5, 5), (1, 1, 3, 3, 3), (2, 1, 5, 5, 5), {"pads": [1] * 6}),
        ((2, 1, 7, 5, 5), (1, 1, 3, 3, 3), (2, 1, 4, 3, 3), {"pads": [1] * 6, "strides": [2, 2, 2]}),
    ],
)
def test_convolutions_are_differentiated_numerically(
    X: tuple[int, ...], W: tuple[int, ...], Y: tuple[int, ...], attributes: dict[str, Any], rng: np.random.Generator
) -> None:
    inputs = {"dY": rng.standard_normal(Y), "X": rng.standard_normal(X), "W": rng.standard_normal(W)}
    attributes = {"kernel_shape": W[2:], **attributes}
    result = checked("ConvGrad", inputs, attributes)
    bias = rng.standard_normal(W[0])
    values = {**inputs, "B": bias}
    for key, output in (("X", "dX"), ("W", "dW"), ("B", "dB")):

        def loss(value: np.ndarray, key: str = key) -> float:
            given = {**values, key: value}
            return float((inputs["dY"] * forward.conv(given["X"], given["W"], given["B"], **attributes)).sum())

        differentiated(loss, values[key], getattr(result, output))
    checked("ConvGrad", {key: each.astype(np.float32) for key, each in inputs.items()}, attributes)


# --- gradient/gradient_ops_test.cc, GradientCheckerTest.BatchNormalizationGrad ----------------------------------------
# --- training_ops/cuda/batch_norm_internal_test.cc, CudaKernelTest.BNInternal* ----------------------------------------


@pytest.mark.parametrize("shape", [(3, 3, 2, 4), (3, 1, 2, 4), (1, 4, 2), (6, 5, 1, 3, 2, 4)])
@pytest.mark.parametrize("epsilon", [None, 1e-5])
def test_batch_norms_are_differentiated_numerically(
    shape: tuple[int, ...], epsilon: float | None, rng: np.random.Generator
) -> None:
    X, dY, scale, bias = (rng.standard_normal(size) for size in (shape, shape, shape[1], shape[1]))
    mean, variance = (each.ravel() for each in forward.moments(X, (0, *range(2, X.ndim))))
    inputs = {"dY": dY, "X": X, "Scale": scale, "saved_mean": mean, "saved_inv_std": 1 / np.sqrt(variance + 1e-5)}
    result = checked("BatchNormalizationGrad", inputs, {} if epsilon is None else {"epsilon": epsilon})
    values = {"X": X, "Scale": scale, "Bias": bias}
    for key, output in (("X", "dX"), ("Scale", "dScale"), ("Bias", "dBias")):

        def loss(value: np.ndarray, key: str = key) -> float:
            return float((dY * forward.batch_norm(**{**values, key: value}, epsilon=1e-5)).sum())

        differentiated(loss, values[key], getattr(result, output))


BATCH = np.array([
    -0.2953, 0.1180, 1.0973, -0.1931, -0.1999, -0.0237, 1.5181, 0.0076,
    -1.0830, -1.5433, 0.4327, -0.9813, 0.7875, -0.4080, -2.3144, 1.5493,
])  # fmt: skip
NORMALIZED = np.array([
    0.0131, 0.5210, 1.7244, 0.1387, -0.2708, -0.1191, 1.2089, -0.0922,
    -0.9548, -1.5203, 0.9077, -0.8298, 0.5796, -0.4501, -2.0921, 1.2358,
])  # fmt: skip
MEAN, INV_STD = np.array([-0.306, 0.114562]), np.array([1.2288, 0.861317])


@pytest.mark.parametrize(
    ("T", "T1", "T2", "shape"),
    [
        ("float32", "float32", "float32", (2, 2, 2, 2)),  # BNInternalBasic
        ("float64", "float64", "float64", (2, 2, 2, 2)),  # BNInternalDouble
        ("float16", "float16", "float16", (2, 2, 2, 2)),  # BNInternalHalf
        ("float16", "float16", "float32", (2, 2, 2, 2)),  # BNInternalHalfHalfFloat
        ("float16", "float32", "float32", (2, 2, 2, 2)),  # BNInternalHalfFloatFloat
        ("float32", "float32", "float32", (2, 2, 4)),  # BNInternal3DInput
        ("float32", "float32", "float32", (2, 2, 2, 1, 2)),  # BNInternal5DInput
    ],
)
def test_batch_norms_take_the_statistics_that_onnx_runtime_saves(
    T: str, T1: str, T2: str, shape: tuple[int, ...]
) -> None:
    """With its normalized values as upstream gradient, the scale's gradient is the sum of their squares, that is m."""
    X, Y = BATCH.reshape(shape), NORMALIZED.reshape(shape)
    inputs = {"dY": Y.astype(T), "X": X.astype(T), "Scale": np.ones(2, T1)}
    inputs |= {"saved_mean": MEAN.astype(T2), "saved_inv_std": INV_STD.astype(T2)}
    result = checked("BatchNormalizationGrad", inputs)
    loose = 1e-2 if "float16" in (T, T1, T2) else 1e-3
    others = (0, *range(2, X.ndim))
    np.testing.assert_allclose(result.dScale.astype(np.float64), (Y**2).sum(others), rtol=loose)
    np.testing.assert_allclose(result.dScale.astype(np.float64), 8, rtol=loose)
    # A gradient along the normalized values is what the norm takes away.
    np.testing.assert_allclose(result.dX.astype(np.float64), 0, atol=4 * loose)


def test_a_batch_norm_of_one_axis_is_refused() -> None:
    """BNInternal1DInput gives X of shape (16,) one channel."""
    one = np.ones(1, np.float32)
    with pytest.raises(gradkern.ShapeError, match="rank 1; expected at least rank 2"):
        run_any("BatchNormalizationGrad", *[BATCH.astype(np.float32)] * 2, one, one, one)


# --- training_ops/cuda/layer_norm_test.cc, CudaKernelTest.*LayerNormGrad_* --------------------------------------------

SIZES = {
    "SmallSizeTensor": ((4, 20, 128), -1),
    "SmallSizeTensor_IntermediateAxis": ((4, 20, 16, 8), -2),
    "MidSizeTensor": ((8, 80, 768), -1),
    "LargeSizeTensor": ((16, 512, 1024), -1),
}


@pytest.mark.parametrize("size", [*list(SIZES)[:-1], pytest.param("LargeSizeTensor", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("operator", "dtype"),
    [(LAYER, "float32"), (SIMPLIFIED, "float32"), (INVERTIBLE, "float32"), (INVERTIBLE, "float16")],
)
def test_layer_norms_of_onnx_runtimes_sizes(operator: str, dtype: str, size: str, rng: np.random.Generator) -> None:
    shape, axis = SIZES[size]
    columns, rows = shape[axis:], shape[:axis]
    over = tuple(range(len(rows), len(shape)))
    D, X, scale, bias = (rng.uniform(-10, 10, each).astype(np.float32) for each in (shape, shape, columns, columns))
    mean = X.mean(over, np.float64)
    square = (X.astype(np.float64) ** 2).mean(over)
    inv_std = 1 / np.sqrt(square - (0 if operator == SIMPLIFIED else mean**2) + 1e-5)
    inputs = {"Y_grad": D.astype(dtype), "X": X, "scale": scale.astype(dtype)}
    if operator == INVERTIBLE:
        del inputs["X"]
        Y = forward.layer_norm(*(each.astype(np.float64) for each in (X, scale, bias)), axis=axis, epsilon=1e-5)
        inputs |= {"Y": Y.astype(dtype), "bias": bias.astype(dtype)}
    elif operator == LAYER:
        inputs["mean"] = mean.astype(np.float32)
    inputs["inv_std_dev" if operator == LAYER else "inv_std_var"] = inv_std.astype(np.float32)
    checked(operator, inputs, {"axis": axis})


# --- gradient/gradient_ops_test.cc, GradientCheckerTest.LayerNormGrad and SimplifiedLayerNormGrad ---------------------


def test_layer_norms_are_differentiated_numerically(rng: np.random.Generator) -> None:
    X, dY, scale, bias = (rng.standard_normal(shape) for shape in ((2, 3, 4), (2, 3, 4), 4, 4))
    mean, variance = forward.moments(X, (2,))
    inputs = {"Y_grad": dY, "X": X, "scale": scale, "mean": mean, "inv_std_dev": 1 / np.sqrt(variance + 1e-5)}
    result = checked(LAYER, inputs)
    loss = lambda X, scale, bias: float((dY * forward.layer_norm(X, scale, bias, -1, 1e-5)).sum())  # noqa: E731
    differentiated(lambda each: loss(each, scale, bias), X, result.X_grad)
    differentiated(lambda each: loss(X, each, bias), scale, result.scale_grad)
    differentiated(lambda each: loss(X, scale, each), bias, result.bias_grad)


def test_simplified_layer_norms_are_differentiated_numerically(rng: np.random.Generator) -> None:
    X, dY, scale = (rng.standard_normal(shape) for shape in ((2, 3, 8), (2, 3, 8), 8))
    inv_std = 1 / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-5)
    result = checked(SIMPLIFIED, {"Y_grad": dY, "X": X, "scale": scale, "inv_std_var": inv_std})
    loss = lambda X, scale: float((dY * forward.rms_norm(X, scale, -1, 1e-5)).sum())  # noqa: E731
    differentiated(lambda each: loss(each, scale), X, result.X_grad)
    differentiated(lambda each: loss(X, each), scale, result.scale_grad)


# --- training_ops/cpu/activation/activation_op_test.cc ----------------------------------------------------------------
# --- training_ops/cuda/activations_test.cc ----------------------------------------------------------------------------


@pytest.mark.parametrize("operator", [EXACT, FAST])
@pytest.mark.parametrize("bias", [0, 2])  # GeluGradTest.Basic and FastGeluGradTest.Basic; BiasGeluGradDxTest.Basic
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelus_of_onnx_runtimes_values(operator: str, bias: float, dtype: str) -> None:
    X = np.array([-1, 0, 1, 100, -100, 1000, -1000], dtype)
    result = checked(operator, {"dY": np.ones_like(X), "X": X, "B": np.full(7, bias, dtype)})
    np.testing.assert_array_equal(result.dX[3:], [1, 0, 1, 0])


@pytest.mark.parametrize("operator", [EXACT, FAST])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 4, 3072), (2, 16384)])
def test_gelus_with_biases_from_1_up(operator: str, shape: tuple[int, ...]) -> None:
    """BiasGeluGradDxTest.BroadcastBias: X counts up from -size/2, B from 1."""
    size, columns = int(np.prod(shape)), shape[-1]
    X = (np.arange(size) - size // 2).astype(np.float32).reshape(shape)
    checked(operator, {"dY": np.ones_like(X), "X": X, "B": np.arange(1, columns + 1, dtype=np.float32)})


@pytest.mark.parametrize("operator", [EXACT, FAST])
@pytest.mark.parametrize("shape", [(4,), (16, 2), (8, 2, 128, 128)])
def test_gelus_of_random_values(operator: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    """CudaKernelTest.GeluGrad_basic and FastGeluGrad_basic."""
    dY, X = (rng.uniform(-10, 10, shape).astype(np.float32) for _ in range(2))
    checked(operator, {"dY": dY, "X": X, "B": np.zeros(shape[-1], np.float32)})


@pytest.mark.parametrize(("operator", "function"), [(EXACT, forward.bias_gelu), (FAST, forward.bias_fast_gelu)])
def test_gelus_are_differentiated_numerically(operator: str, function: Any, rng: np.random.Generator) -> None:
    """GradientCheckerTest.BiasGeluGrad and FastGeluGrad_Bias."""
    X, dY, B = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4)), rng.standard_normal(4)
    result = run_any(operator, dY, X, B, outputs=("dX", "dB"))
    differentiated(lambda each: float((dY * function(each, B)).sum()), X, result.dX)
    differentiated(lambda each: float((dY * function(X, each)).sum()), B, result.dB)
