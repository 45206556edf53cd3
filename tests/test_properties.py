"""What must hold for any arrays: hypothesis picks shapes, types, strides, axes and attributes."""

import numpy as np
import pytest
from helpers import forward
from helpers.reference import reference
from helpers.tolerance import assert_close, norm_of
from hypothesis import assume, given
from hypothesis import strategies as st

import gradkern

pytestmark = pytest.mark.thorough

seeds = st.integers(0, 2**32 - 1)
floats = st.sampled_from([np.float32, np.float64])
small = st.integers(1, 7)


@st.composite
def normalized(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], int]:
    """Inputs of LayerNormalizationGrad of rank 1 to 4, and an axis, counted from either end."""
    shape = tuple(draw(st.lists(small, min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    random, dtype = np.random.default_rng(draw(seeds)), draw(floats)
    start = axis % len(shape)
    arrays = {
        "Y_grad": random.standard_normal(shape),
        "X": random.standard_normal(shape),
        "scale": random.standard_normal(shape[start:]),
        "mean": random.standard_normal(shape[:start]),
        "inv_std_dev": random.uniform(0.5, 2, shape[:start]),
    }
    return {key: np.asarray(array).astype(dtype) for key, array in arrays.items()}, axis


def norm_terms(inputs: dict[str, np.ndarray]) -> np.ndarray:
    """What the sums of a layer norm add up, or more."""
    shape = inputs["X"].shape
    r = inputs["inv_std_dev"].reshape(*inputs["inv_std_dev"].shape, *[1] * (len(shape) - inputs["inv_std_dev"].ndim))
    xh = (inputs["X"] - inputs["mean"].reshape(r.shape)) * r
    D = inputs["Y_grad"]
    return np.abs(D) * (1 + np.abs(xh)) * (1 + r * np.abs(inputs["scale"]) * (1 + np.abs(xh)))


@given(normalized())
def test_layer_norm_gradients_agree_with_float64_for_any_shape_and_axis(problem: tuple) -> None:
    inputs, axis = problem
    result = gradkern.run("LayerNormalizationGrad", **inputs, axis=axis)
    expected = reference("LayerNormalizationGrad", inputs, {"axis": axis})
    for key, array in result._asdict().items():
        assert_close("LayerNormalizationGrad", key, array, expected[key], norm_terms(inputs))


@given(normalized(), st.floats(-4, 4), seeds)
def test_gradients_are_linear_in_the_upstream_gradient(problem: tuple, factor: float, seed: int) -> None:
    inputs, axis = problem
    other = np.random.default_rng(seed).standard_normal(inputs["Y_grad"].shape).astype(inputs["Y_grad"].dtype)
    run = lambda D: gradkern.run("LayerNormalizationGrad", **{**inputs, "Y_grad": D}, axis=axis)  # noqa: E731
    combined = run((factor * inputs["Y_grad"] + other).astype(other.dtype))
    terms = norm_terms({**inputs, "Y_grad": np.abs(factor * inputs["Y_grad"]) + np.abs(other)})  # they may cancel
    for one, two, both in zip(run(inputs["Y_grad"]), run(other), combined, strict=True):
        assert np.linalg.norm(factor * one + two - both) <= 4 * norm_of("", both.dtype) * np.linalg.norm(terms)


@given(normalized(), seeds)
def test_permuting_rows_permutes_the_input_gradient_and_keeps_the_sums(problem: tuple, seed: int) -> None:
    inputs, axis = problem
    assume(axis % inputs["X"].ndim > 0)
    order = np.random.default_rng(seed).permutation(len(inputs["X"]))
    permuted = {key: array[order] if key != "scale" else array for key, array in inputs.items()}
    plain = gradkern.run("LayerNormalizationGrad", **inputs, axis=axis)
    other = gradkern.run("LayerNormalizationGrad", **permuted, axis=axis)
    np.testing.assert_array_equal(plain.X_grad[order], other.X_grad)
    rows = np.abs(inputs["Y_grad"]).max() * (1 + np.abs(inputs["X"]).max() + np.abs(inputs["mean"]).max()) * 2
    for key in ("scale_grad", "bias_grad"):
        difference = np.abs(getattr(plain, key) - getattr(other, key)).max()
        assert difference <= norm_of("", plain.X_grad.dtype) * rows * len(order) * 10


@given(normalized())
def test_the_input_gradient_of_a_true_layer_norm_sums_to_zero_over_each_row(problem: tuple) -> None:
    """Adding a constant to a row of X does not change its normalization."""
    inputs, axis = problem
    X = inputs["X"].astype(np.float64)
    axes = tuple(range(axis % X.ndim, X.ndim))
    mean, variance = forward.moments(X, axes)
    shape = inputs["mean"].shape
    inputs = {key: array.astype(np.float64) for key, array in inputs.items()}
    inputs |= {"mean": mean.reshape(shape), "inv_std_dev": (1 / np.sqrt(variance + 1e-3)).reshape(shape)}
    dX = gradkern.run("LayerNormalizationGrad", **inputs, axis=axis, outputs="X_grad").X_grad
    size = np.prod([X.shape[each] for each in axes])
    assert np.abs(dX.sum(axes)).max() <= 1e-12 * size * (1 + np.abs(dX).max() + np.abs(inputs["Y_grad"]).max() * 100)


@given(normalized())
def test_rms_norm_is_layer_norm_with_its_sum_of_gradients_left_out(problem: tuple) -> None:
    inputs, axis = problem
    inputs["mean"] = np.zeros_like(inputs["mean"])
    simplified = {"inv_std_var": inputs["inv_std_dev"], **{key: inputs[key] for key in ("Y_grad", "X", "scale")}}
    rms = gradkern.run("SimplifiedLayerNormalizationGrad", **simplified, axis=axis)
    full = gradkern.run("LayerNormalizationGrad", **inputs, axis=axis)
    assert_close("", "scale_grad", rms.scale_grad, full.scale_grad.astype(np.float64), norm_terms(inputs))
    expected = reference("SimplifiedLayerNormalizationGrad", simplified, {"axis": axis})
    assert_close("SimplifiedLayerNormalizationGrad", "X_grad", rms.X_grad, expected["X_grad"], norm_terms(inputs))


@given(st.lists(small, max_size=3), small, small, floats, seeds)
def test_dml_and_onnx_batch_norm_agree_on_the_parameters_gradients(
    spatial: list[int], batch: int, channels: int, dtype: type, seed: int
) -> None:
    random = np.random.default_rng(seed)
    shape, one = (batch, channels, *spatial), (1, channels, *(1 for _ in spatial))
    X, dY = (random.standard_normal(shape).astype(dtype) for _ in range(2))
    mean, variance, scale = (
        random.standard_normal(channels),
        random.uniform(0.5, 2, channels),
        random.uniform(1, 2, channels),
    )
    inv_std = 1 / np.sqrt(variance + 1e-3)
    onnx = gradkern.run("BatchNormalizationGrad", dY, X, *(each.astype(dtype) for each in (scale, mean, inv_std)))
    dml = gradkern.run(
        "DmlBatchNormalizationGrad",
        X,
        dY,
        *(each.reshape(one).astype(dtype) for each in (mean, variance, scale)),
        Epsilon=1e-3,
    )
    bound = 10 * norm_of("", onnx.dX.dtype) * np.abs(dY).sum() * (1 + np.abs(X).max() + np.abs(mean).max()) * 2
    assert np.abs(onnx.dBias - dml.OutputBiasGradient.ravel()).max() <= bound
    assert np.abs(onnx.dScale - dml.OutputScaleGradient.ravel()).max() <= bound


@given(st.lists(st.tuples(small, st.booleans()), min_size=1, max_size=6), seeds)
def test_dml_statistics_may_be_shared_along_any_dimensions(dimensions: list[tuple[int, bool]], seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(size for size, _ in dimensions)
    shared = tuple(1 if one else size for size, one in dimensions)
    inputs = {
        "Input": random.standard_normal(shape),
        "InputGradient": random.standard_normal(shape),
        "Mean": random.standard_normal(shared),
        "Variance": random.uniform(0.5, 2, shared),
        "Scale": random.standard_normal(shared),
    }
    inputs = {key: array.astype(np.float32) for key, array in inputs.items()}
    result = gradkern.run("DmlBatchNormalizationGrad", **inputs, Epsilon=0.1)
    expected = reference("DmlBatchNormalizationGrad", inputs, {"Epsilon": 0.1})
    for key, array in result._asdict().items():
        spread = inputs["InputGradient"] * (1 + np.abs(inputs["Input"] - inputs["Mean"]) / np.sqrt(inputs["Variance"]))
        assert_close("DmlBatchNormalizationGrad", key, array, expected[key], spread)


@st.composite
def convolution(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, object]]:
    """dY, X, W and attributes of a convolution that has an output; memory order of X and dY drawn too."""
    rank = draw(st.integers(1, 3))
    group, per_group, per_filter = (draw(st.integers(1, 3)) for _ in range(3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides, dilations = ([draw(st.integers(1, 3)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    spatial = [draw(st.integers(1, 8)) for _ in range(rank)]
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    room = [s + pads[i] + pads[rank + i] - e for i, (s, e) in enumerate(zip(spatial, extent, strict=True))]
    assume(min(room) >= 0)
    out = [r // s + 1 for r, s in zip(room, strides, strict=True)]
    random, batch = np.random.default_rng(draw(seeds)), draw(st.integers(1, 3))
    X = random.standard_normal((batch, group * per_group, *spatial))
    W = random.standard_normal((group * per_filter, per_group, *kernel))
    dY = random.standard_normal((batch, group * per_filter, *out))
    if draw(st.booleans()):
        X, dY = (np.moveaxis(np.ascontiguousarray(np.moveaxis(each, 1, -1)), -1, 1) for each in (X, dY))
    return dY, X, W, {"pads": pads, "strides": strides, "dilations": dilations, "group": group}


@given(convolution(), seeds)
def test_convolution_gradients_are_adjoint_to_the_forward_convolution(problem: tuple, seed: int) -> None:
    """<dY, conv(V, W)> = <dX, V> for any V, and <dY, conv(X, V)> = <dW, V>: that is what a gradient is."""
    dY, X, W, attributes = problem
    dX, dW, dB = gradkern.run("ConvGrad", dY, X, W, **attributes)
    random = np.random.default_rng(seed)
    for gradient, along in (
        (dX, lambda V: forward.conv(V, W, **attributes)),
        (dW, lambda V: forward.conv(X, V, **attributes)),
    ):
        V = random.standard_normal(gradient.shape)
        image = along(V)
        scale = np.linalg.norm(dY) * np.linalg.norm(image) + np.linalg.norm(gradient) * np.linalg.norm(V)
        assert abs((dY * image).sum() - (gradient * V).sum()) <= 1e-13 * scale + 1e-30
    np.testing.assert_allclose(dB, dY.sum((0, *range(2, dY.ndim))), rtol=1e-12, atol=1e-12 * np.abs(dY).sum())


@given(convolution())
def test_convolution_gradients_in_float32_agree_with_float64(problem: tuple) -> None:
    dY, X, W, attributes = problem
    inputs = {"dY": dY.astype(np.float32), "X": X.astype(np.float32), "W": W.astype(np.float32)}
    result = gradkern.run("ConvGrad", **inputs, **attributes)
    expected = reference("ConvGrad", inputs, attributes)
    terms = np.asarray(np.linalg.norm(dY) * max(np.linalg.norm(X), np.linalg.norm(W)))
    for key, array in result._asdict().items():
        assert_close("ConvGrad", key, array, expected[key], terms)
