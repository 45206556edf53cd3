"""The float64 references are the derivatives of the forward passes: proven here by finite differences.

Everything that compares a provider with `reference` rests on this file. The forward passes themselves are compared
with PyTorch's, and the convolution with its definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import forward
from helpers.forward import Array
from helpers.reference import central_differences, directional_difference, reference

EPSILON = 1e-3
NORM_SHAPES = [((7,), -1), ((3, 5), -1), ((3, 5), 0), ((2, 3, 4), 1), ((2, 3, 4), -1), ((4, 1, 3), -2), ((5, 1), -1)]
BATCH_SHAPES = [(6, 3), (4, 2, 5), (2, 3, 2, 4), (2, 2, 2, 1, 3), (3, 1, 4)]
DML_SHAPES = [((5,), (1,)), ((3, 4), (1, 4)), ((2, 3, 2, 2), (1, 3, 1, 1)), ((2, 3, 2), (2, 1, 2)), ((2, 3), (2, 3))]
GELU_SHAPES = [(5,), (3, 4), (2, 3, 2)]
# X, W, attributes: 1-D to 3-D, groups, depthwise, strides that leave a rest, dilations, every kind of padding.
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7), (4, 3, 3), {}),
    ((2, 4, 8), (6, 2, 3), {"group": 2, "strides": [2], "pads": [2, 1]}),
    ((1, 2, 9), (2, 2, 3), {"dilations": [3], "pads": [0, 4]}),
    ((2, 2, 5, 4), (3, 2, 3, 2), {"pads": [2, 0, 1, 1]}),
    ((1, 3, 6, 5), (6, 1, 3, 3), {"group": 3, "strides": [2, 3], "dilations": [1, 2], "pads": [1, 2, 0, 1]}),
    ((2, 2, 4, 3), (2, 2, 1, 1), {}),
    ((1, 2, 5, 6), (2, 2, 2, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 5, 6), (2, 2, 2, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 5, 6), (2, 2, 2, 3), {"strides": [3, 1], "auto_pad": "VALID"}),
    ((1, 2, 3, 4, 3), (4, 1, 2, 3, 2), {"group": 2, "strides": [1, 2, 1], "pads": [1, 0, 0, 0, 2, 1]}),
]


@pytest.fixture
def draw() -> Callable[..., Array]:
    return np.random.default_rng(20).standard_normal


def assert_derivative(
    gradients: dict[str, Array],
    forward_pass: Callable[..., Array],
    at: dict[str, Array],
    D: Array,
    names: dict[str, str],
) -> None:
    """Each output of the reference is the derivative of sum(D * forward) with respect to the argument it names."""
    for output, argument in names.items():

        def loss(value: Array, argument: str = argument) -> float:
            return float((D * forward_pass(**{**at, argument: value})).sum())

        expected = central_differences(loss, at[argument])
        np.testing.assert_allclose(gradients[output].reshape(expected.shape), expected, rtol=1e-8, atol=1e-9)


def linearised(X: Array, at: Array, mean: Array, inv_std: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Any mean and inverse deviation, moving with X as true statistics would: their first-order terms around `at`.

    d mean = average(dX) and d inv_std = -inv_std^3 * average((X - mean) * dX). So the derivative of a normalisation
    with *given* statistics has a forward pass too, one that is only quadratic in X.
    """
    dX = X - at
    moved = inv_std - inv_std**3 * ((at - mean) * dX).mean(axes, keepdims=True)
    return mean + dX.mean(axes, keepdims=True), moved


@pytest.mark.parametrize(("shape", "axis"), NORM_SHAPES)
def test_layer_norms_are_the_derivative_with_statistics_of_x(
    draw: Callable[..., Array], shape: tuple[int, ...], axis: int
) -> None:
    axes = tuple(range(axis % len(shape), len(shape)))
    X, D, scale, bias = draw(shape), draw(shape), draw(shape[axes[0] :]), draw(shape[axes[0] :])
    mean, variance = forward.moments(X, axes)
    inv_std = 1 / np.sqrt(variance + EPSILON)

    def normalise(X: Array, scale: Array, bias: Array) -> Array:
        return forward.layer_norm(X, scale, bias, axis, EPSILON)

    at = {"X": X, "scale": scale, "bias": bias}
    outputs = {"X_grad": "X", "scale_grad": "scale", "bias_grad": "bias"}
    inputs = {"Y_grad": D, "X": X, "scale": scale, "mean": mean, "inv_std_dev": inv_std}
    assert_derivative(reference("LayerNormalizationGrad", inputs, {"axis": axis}), normalise, at, D, outputs)

    inputs = {"Y_grad": D, "Y": normalise(**at), "scale": scale, "bias": bias, "inv_std_var": inv_std}
    assert_derivative(reference("InvertibleLayerNormalizationGrad", inputs, {"axis": axis}), normalise, at, D, outputs)


@pytest.mark.parametrize(("shape", "axis"), NORM_SHAPES)
def test_rms_norm_is_the_derivative_with_the_statistic_of_x(
    draw: Callable[..., Array], shape: tuple[int, ...], axis: int
) -> None:
    axes = tuple(range(axis % len(shape), len(shape)))
    X, D, scale = draw(shape), draw(shape), draw(shape[axes[0] :])
    inv_std = 1 / np.sqrt((X**2).mean(axes, keepdims=True) + EPSILON)

    def normalise(X: Array, scale: Array) -> Array:
        return forward.rms_norm(X, scale, axis, EPSILON)

    inputs = {"Y_grad": D, "X": X, "scale": scale, "inv_std_var": inv_std}
    gradients = reference("SimplifiedLayerNormalizationGrad", inputs, {"axis": axis})
    assert_derivative(gradients, normalise, {"X": X, "scale": scale}, D, {"X_grad": "X", "scale_grad": "scale"})


@pytest.mark.parametrize(("shape", "axis"), NORM_SHAPES)
def test_norms_over_columns_hold_for_statistics_of_any_value(
    draw: Callable[..., Array], shape: tuple[int, ...], axis: int
) -> None:
    axes = tuple(range(axis % len(shape), len(shape)))
    per_row = shape[: axes[0]] + (1,) * len(axes)
    at, D, scale, bias = draw(shape), draw(shape), draw(shape[axes[0] :]), draw(shape[axes[0] :])
    mean, inv_std = draw(per_row), np.exp(draw(per_row))

    def layer(X: Array) -> Array:
        moved_mean, moved_inv_std = linearised(X, at, mean, inv_std, axes)
        return (X - moved_mean) * moved_inv_std * scale + bias

    def rms(X: Array) -> Array:
        return X * linearised(X, at, np.zeros(per_row), inv_std, axes)[1] * scale

    inputs = {"Y_grad": D, "X": at, "scale": scale, "mean": mean, "inv_std_dev": inv_std}
    gradients = reference("LayerNormalizationGrad", inputs, {"axis": axis})
    assert_derivative(gradients, layer, {"X": at}, D, {"X_grad": "X"})
    inputs = {"Y_grad": D, "Y": layer(at), "scale": scale, "bias": bias, "inv_std_var": inv_std}
    gradients = reference("InvertibleLayerNormalizationGrad", inputs, {"axis": axis})
    assert_derivative(gradients, layer, {"X": at}, D, {"X_grad": "X"})
    inputs = {"Y_grad": D, "X": at, "scale": scale, "inv_std_var": inv_std}
    gradients = reference("SimplifiedLayerNormalizationGrad", inputs, {"axis": axis})
    assert_derivative(gradients, rms, {"X": at}, D, {"X_grad": "X"})


@pytest.mark.parametrize("shape", BATCH_SHAPES)
def test_batch_norm_is_the_derivative_with_statistics_of_x_and_of_any_value(
    draw: Callable[..., Array], shape: tuple[int, ...]
) -> None:
    others = (0, *range(2, len(shape)))
    X, D, Scale, Bias = draw(shape), draw(shape), draw(shape[1]), draw(shape[1])
    mean, variance = forward.moments(X, others)
    inputs = {"dY": D, "X": X, "Scale": Scale, "saved_mean": mean.ravel()}
    inputs["saved_inv_std"] = 1 / np.sqrt(variance + EPSILON).ravel()

    def normalise(X: Array, Scale: Array, Bias: Array) -> Array:
        return forward.batch_norm(X, Scale, Bias, EPSILON)

    gradients = reference("BatchNormalizationGrad", inputs, {"epsilon": EPSILON})
    at = {"X": X, "Scale": Scale, "Bias": Bias}
    assert_derivative(gradients, normalise, at, D, {"dX": "X", "dScale": "Scale", "dBias": "Bias"})

    any_mean, any_inv_std = draw(mean.shape), np.exp(draw(mean.shape))

    def with_any_statistics(X: Array, Scale: Array, Bias: Array) -> Array:
        moved_mean, moved_inv_std = linearised(X, at["X"], any_mean, any_inv_std, others)
        return (X - moved_mean) * moved_inv_std * Scale.reshape(mean.shape[1:]) + Bias.reshape(mean.shape[1:])

    inputs |= {"saved_mean": any_mean.ravel(), "saved_inv_std": any_inv_std.ravel()}
    gradients = reference("BatchNormalizationGrad", inputs)
    assert_derivative(gradients, with_any_statistics, at, D, {"dX": "X", "dScale": "Scale", "dBias": "Bias"})


@pytest.mark.parametrize(
    ("activation", "seen", "residual"),
    [("relu", "Y", 1), ("relu", "B", 0), ("leaky_relu", "Y", 1), ("leaky_relu", "B", 0)]
    + [(each, "B", 0) for each in ("silu", "relu6", "hardswish", "elu", "gelu")],
)
def test_batch_norm_with_an_activation_is_the_derivative(
    draw: Callable[..., Array], activation: str, seen: str, residual: int
) -> None:
    X, Z, D = (draw((4, 2, 5)) for _ in range(3))
    Scale, Bias = draw(2), draw(2)
    mean, variance = forward.moments(X, (0, 2))

    def activate(X: Array, Scale: Array, Bias: Array, Z: Array) -> Array:
        t = forward.batch_norm(X, Scale, Bias, EPSILON) + residual * Z
        others = {
            "silu": t / (1 + np.exp(-t)),
            "relu6": np.minimum(np.maximum(t, 0), 6),
            "hardswish": t * np.minimum(np.maximum(t + 3, 0), 6) / 6,
            "elu": np.maximum(t, 0) + 0.2 * (np.exp(np.minimum(t, 0)) - 1),
            "gelu": forward.activated(t, "gelu"),
        }
        if activation in others:
            return others[activation]
        return np.maximum(t, 0) + (0.2 * np.minimum(t, 0) if activation == "leaky_relu" else 0)

    at = {"X": X, "Scale": Scale, "Bias": Bias, "Z": Z}
    given = {"dY": D / 4, "dY2": 3 * D / 4, "X": X, "Scale": Scale, "saved_mean": mean.ravel()}
    given["saved_inv_std"] = 1 / np.sqrt(variance + EPSILON).ravel()
    names = {"dX": "X", "dScale": "Scale", "dBias": "Bias"} | ({"dZ": "Z"} if residual else {})
    given |= {"Y": activate(**at)} if seen == "Y" else {"B": Bias}
    gradients = reference("BatchNormalizationGrad", given, {"activation": activation, "activation_alpha": 0.2})
    assert_derivative(gradients, activate, at, D, names)


@pytest.mark.parametrize(("shape", "statistics"), DML_SHAPES)
def test_dml_batch_norm_is_the_derivative_with_constant_statistics(
    draw: Callable[..., Array], shape: tuple[int, ...], statistics: tuple[int, ...]
) -> None:
    Input, D, Mean, Scale, Bias = draw(shape), draw(shape), draw(statistics), draw(statistics), draw(statistics)
    Variance = np.exp(draw(statistics))

    def normalise(Input: Array, Scale: Array, Bias: Array) -> Array:
        return forward.dml_batch_norm(Input, Mean, Variance, Scale, Bias, EPSILON)

    inputs = {"Input": Input, "InputGradient": D, "Mean": Mean, "Variance": Variance, "Scale": Scale}
    gradients = reference("DmlBatchNormalizationGrad", inputs, {"Epsilon": EPSILON})
    assert gradients["OutputScaleGradient"].shape == statistics
    names = {"OutputGradient": "Input", "OutputScaleGradient": "Scale", "OutputBiasGradient": "Bias"}
    assert_derivative(gradients, normalise, {"Input": Input, "Scale": Scale, "Bias": Bias}, D, names)


@pytest.mark.parametrize("shape", GELU_SHAPES)
@pytest.mark.parametrize(
    ("operator", "gelu"), [("BiasGeluGrad_dX", forward.bias_gelu), ("BiasFastGeluGrad_dX", forward.bias_fast_gelu)]
)
def test_gelus_are_the_derivative(
    draw: Callable[..., Array], operator: str, gelu: Callable[..., Array], shape: tuple[int, ...]
) -> None:
    X, D, B = 2 * draw(shape), draw(shape), draw(shape[-1])
    gradients = reference(operator, {"dY": D, "X": X, "B": B})
    assert_derivative(gradients, gelu, {"X": X, "B": B}, D, {"dX": "X", "dB": "B"})


@pytest.mark.parametrize("operator", ["BiasGeluGrad_dX", "BiasFastGeluGrad_dX"])
def test_gelus_reach_their_limits_without_overflow(operator: str) -> None:
    X = np.array([-np.inf, -1e300, -1e30, -60.0, 0.0, 60.0, 1e30, 1e300, np.inf, np.nan])
    dX = reference(operator, {"dY": np.full(10, 3.0), "X": X, "B": np.zeros(10)})["dX"]
    np.testing.assert_array_equal(dX, [0, 0, 0, 0, 1.5, 3, 3, 3, 3, np.nan])


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS)
def test_conv_is_the_derivative(
    draw: Callable[..., Array], x_shape: tuple[int, ...], w_shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    X, W, B = draw(x_shape), draw(w_shape), draw(w_shape[0])
    D = draw(forward.conv(X, W, B, **attributes).shape)

    def convolve(X: Array, W: Array, B: Array) -> Array:
        return forward.conv(X, W, B, **attributes)

    gradients = reference("ConvGrad", {"dY": D, "X": X, "W": W}, attributes)
    assert_derivative(gradients, convolve, {"X": X, "W": W, "B": B}, D, {"dX": "X", "dW": "W", "dB": "B"})


def test_forward_conv_follows_its_definition_element_by_element(draw: Callable[..., Array]) -> None:
    X, W = draw((2, 4, 6, 5)), draw((6, 2, 2, 3))
    (top, left, bottom, right), (down, across), (dy, dx) = (1, 0, 0, 2), (2, 1), (3, 2)
    Y = forward.conv(X, W, group=2, pads=[top, left, bottom, right], strides=[down, across], dilations=[dy, dx])

    assert Y.shape == (2, 6, (6 + top + bottom - dy - 1) // down + 1, (5 + left + right - 2 * dx - 1) // across + 1)
    for n, m, i, j in product(*map(range, Y.shape)):
        total = 0.0
        for c, p, q in product(range(2), range(2), range(3)):
            row, column = i * down + p * dy - top, j * across + q * dx - left
            if 0 <= row < 6 and 0 <= column < 5:
                total += X[n, m // 3 * 2 + c, row, column] * W[m, c, p, q]
        assert math.isclose(Y[n, m, i, j], total, rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.torch
def test_forward_passes_agree_with_pytorch(draw: Callable[..., Array]) -> None:
    import torch

    F = torch.nn.functional
    X, scale, bias = draw((4, 6, 5)), draw((6, 5)), draw((6, 5))
    channel_scale, channel_bias, W = draw(6), draw(6), draw((4, 3, 2))
    tX, t_scale, t_bias, t_channel_scale, t_channel_bias, tW = map(
        torch.from_numpy, (X, scale, bias, channel_scale, channel_bias, W)
    )

    def column(channels: Array) -> Array:
        return channels[:, None]

    variance = column(channel_scale**2)
    pairs = [
        (forward.layer_norm(X, scale, bias, 1, 1e-3), F.layer_norm(tX, (6, 5), t_scale, t_bias, 1e-3)),
        (forward.rms_norm(X, scale, 1, 1e-3), F.rms_norm(tX, (6, 5), t_scale, 1e-3)),
        (
            forward.batch_norm(X, channel_scale, channel_bias, 1e-3),
            F.batch_norm(tX, None, None, t_channel_scale, t_channel_bias, training=True, eps=1e-3),
        ),
        (
            forward.dml_batch_norm(
                X, column(channel_bias), variance, column(channel_scale), column(channel_bias), 1e-3
            ),
            F.batch_norm(tX, t_channel_bias, t_channel_scale**2, t_channel_scale, t_channel_bias, eps=1e-3),
        ),
        (forward.bias_gelu(X, bias), F.gelu(tX + t_bias)),
        (forward.bias_fast_gelu(X, bias), F.gelu(tX + t_bias, approximate="tanh")),
        (
            forward.conv(X, W, group=2, pads=[1, 1], strides=[2], dilations=[2]),
            F.conv1d(tX, tW, groups=2, padding=1, stride=2, dilation=2),
        ),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pads", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size", [5, 6, 7])
def test_same_padding_keeps_size_over_stride_outputs(draw: Callable[..., Array], size: int, pads: str) -> None:
    Y = forward.conv(draw((1, 1, size)), draw((1, 1, 4)), strides=[2], auto_pad=pads)
    assert Y.shape == (1, 1, math.ceil(size / 2))
    begin, end = forward.conv_pads([size], [4], [2], [1], None, pads)
    assert 0 <= (end - begin if pads == "SAME_UPPER" else begin - end) <= 1


def test_empty_axes_give_empty_gradients_and_sums_of_zero() -> None:
    X, W = np.zeros((0, 4, 5)), np.ones((6, 2, 3))
    gradients = reference("ConvGrad", {"dY": np.zeros((0, 6, 3)), "X": X, "W": W}, {"group": 2})
    assert {name: array.shape for name, array in gradients.items()} == {"dX": X.shape, "dW": W.shape, "dB": (6,)}
    assert not any(array.any() for array in gradients.values())

    empty, ones = np.zeros((0, 4)), np.ones(4)
    inputs = {"Y_grad": empty, "X": empty, "scale": ones, "mean": np.zeros(0), "inv_std_dev": np.zeros(0)}
    gradients = reference("LayerNormalizationGrad", inputs)
    assert gradients["X_grad"].shape == (0, 4)
    np.testing.assert_array_equal(gradients["scale_grad"], np.zeros(4))
    inputs = {"dY": empty, "X": empty, "Scale": ones, "saved_mean": ones, "saved_inv_std": ones}
    gradients = reference("BatchNormalizationGrad", inputs)
    assert gradients["dX"].shape == (0, 4)
    np.testing.assert_array_equal(gradients["dScale"], np.zeros(4))


def test_narrow_inputs_are_widened_exactly() -> None:
    narrow = np.array([[1.0, 0.3333, -2.7]]).astype(ml_dtypes.bfloat16)
    inputs = {"dY": narrow, "X": narrow, "B": narrow[0]}
    wide = {name: value.astype(np.float64) for name, value in inputs.items()}
    np.testing.assert_array_equal(reference("BiasGeluGrad_dX", inputs)["dX"], reference("BiasGeluGrad_dX", wide)["dX"])


def test_the_difference_formula_finds_a_known_slope() -> None:
    at, direction = np.array([0.3, -1.2]), np.array([1.0, 2.0])
    slope = directional_difference(lambda x: float(np.exp(x).sum()), at, direction)
    assert math.isclose(slope, np.exp(at) @ direction, rel_tol=1e-10)
