"""Batch norm's forward pass, and its gradient with an activation, a residual and a second gradient, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import message, run_any
from helpers.examples import in_turn
from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close
from memory_orders import in_order

import gradkern
from gradkern import ArgumentError
from gradkern.errors import AttributeValueError

FORWARD, GRADIENT = "BatchNormalization", "BatchNormalizationGrad"
ALPHA = 0.2  # not the default
TYPES = [("float32", "float32"), ("bfloat16", "float32"), ("float64", "float64")]
ORDERS = ["C", "channels_last"]
GRADIENTS: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    # activation, inputs beyond those that are always given, outputs beyond the usual
    ("relu", ("Y", "dY2"), ("dZ",)),
    ("relu", ("Y",), ()),
    ("relu", ("B",), ()),
    ("silu", ("B", "dY2"), ()),
    *((each, ("B", "dY2"), ()) for each in ("relu6", "hardswish", "elu", "gelu")),
    ("none", ("dY2",), ("dZ",)),
    ("leaky_relu", ("Y", "dY2"), ("dZ",)),
    ("leaky_relu", ("B",), ()),
]


def operands(data: str, parameter: str, order: str = "C", shape: tuple[int, ...] = (6, 5, 3, 4)) -> dict[str, Any]:
    """Of the forward pass, with channels of different means and deviations."""
    random = np.random.default_rng(0)
    channels = (shape[1], *[1] * (len(shape) - 2))
    spread, level = random.uniform(0.5, 2, channels), random.standard_normal(channels)
    X, Z = (in_order((spread * random.standard_normal(shape) + level).astype(data), order) for _ in range(2))
    scale, B = (random.uniform(0.5, 1.5, shape[1]).astype(parameter) for _ in range(2))
    mean, variance = random.standard_normal(shape[1]), random.uniform(0.5, 2, shape[1])
    return {
        "X": X,
        "scale": scale,
        "B": (B - 1).astype(parameter),
        "Z": Z,
        "input_mean": mean.astype(parameter),
        "input_var": variance.astype(parameter),
    }


def upstream(given: dict[str, Any], activation: str, names: tuple[str, ...], order: str = "C") -> dict[str, Any]:
    """The inputs of the gradient, after a forward pass."""
    residual = given["Z"] if "Y" in names else None
    how = {"activation": activation, "activation_alpha": ALPHA}
    saved = run_any(FORWARD, given["X"], given["scale"], given["B"], Z=residual, **how)
    random, like = np.random.default_rng(1), given["X"]
    extra = {
        "B": given["B"],
        "Y": saved.Y,
        "dY2": in_order(random.standard_normal(like.shape).astype(like.dtype), order),
    }
    return {
        "dY": in_order(random.standard_normal(like.shape).astype(like.dtype), order),
        "X": like,
        "Scale": given["scale"],
        "saved_mean": saved.saved_mean,
        "saved_inv_std": saved.saved_inv_std,
        **{name: extra[name] for name in names},
    }


@pytest.mark.parametrize(
    ("activation", "data", "parameter", "order"),
    in_turn([(each,) for each in ("relu", "leaky_relu", "silu", "relu6", "hardswish", "elu", "gelu")], TYPES, ORDERS),
)
def test_an_activation_comes_after_the_residual(activation: str, data: str, parameter: str, order: str) -> None:
    given = operands(data, parameter, order)
    how = {"activation": activation, "activation_alpha": ALPHA}
    found = run_any(FORWARD, **given, **how)
    expected = reference(FORWARD, given, how)
    assert found.Y.strides == given["X"].strides
    assert_close(FORWARD, "Y", found.Y, expected["Y"])
    assert_elements_close(FORWARD, "Y", found.Y, expected["Y"])


@pytest.mark.parametrize(
    ("activation", "names", "outputs", "data", "parameter", "order"), in_turn(GRADIENTS, TYPES, ORDERS)
)
def test_gradients_go_through_the_activation(
    activation: str, names: tuple[str, ...], outputs: tuple[str, ...], data: str, parameter: str, order: str
) -> None:
    given = upstream(operands(data, parameter, order), activation, names, order)
    wanted = ("dX", "dScale", "dBias", *outputs)
    how = {"activation": activation, "activation_alpha": ALPHA}
    found = run_any(GRADIENT, **given, **how, outputs=wanted)
    expected = reference(GRADIENT, given, how)
    for name in wanted:
        assert_close(GRADIENT, name, getattr(found, name), expected[name])


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
@pytest.mark.parametrize("order", ["C", "channels_last"])
def test_what_is_computed_again_is_what_the_forward_pass_had(order: str, activation: str) -> None:
    """The mask from B is that from Y: one bit between them would be a gradient where there is none, or none."""
    given = operands("float32", "float32", order, (16, 7, 20, 20))
    saved = run_any(FORWARD, *(given[name] for name in ("X", "scale", "B")), activation=activation)
    common = (given["X"], given["X"], given["scale"], saved.saved_mean, saved.saved_inv_std)
    of_Y, of_B = (
        run_any(GRADIENT, *common, **{name: each}, activation=activation).dX
        for name, each in (("Y", saved.Y), ("B", given["B"]))
    )
    np.testing.assert_array_equal(of_Y, of_B)


def test_the_mean_of_what_has_an_infinity_is_infinite() -> None:
    X = np.array([[1.0, 1], [-np.inf, 2], [3, 3]], np.float32)
    for data in (X, X[..., None]):
        found = run_any(FORWARD, data, *np.ones((2, 2), np.float32), outputs=["saved_mean"])
        np.testing.assert_array_equal(found.saved_mean, [-np.inf, 2])


def test_nan_goes_through_relu_both_ways() -> None:
    X = np.array([[1.0, 1], [np.nan, 2], [3, 3]], np.float32)
    one = np.ones(2, np.float32)
    saved = gradkern.run(FORWARD, X, one, one, activation="relu")
    np.testing.assert_array_equal(np.isnan(saved.Y), [[True, False]] * 3)
    Y = np.array([[np.nan, 1], [1, 0], [1, -1]], np.float32)
    statistics = (one, one, one)
    dZ = gradkern.run(GRADIENT, np.ones_like(Y), Y, *statistics, Y=Y, activation="relu", outputs=["dZ"]).dZ
    np.testing.assert_array_equal(dZ, [[1, 1], [1, 0], [1, 0]])


def test_leaky_relu_is_pytorchs_at_zero_and_of_nan() -> None:
    """The slope at 0, and of NaN; by default ONNX's."""
    t = np.array([[np.nan, 1], [1, 0], [-2, -1]], np.float32)
    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    Y = gradkern.run(FORWARD, np.zeros_like(t), one, zero, Z=t, activation="leaky_relu").Y
    np.testing.assert_array_equal(Y, np.array([[np.nan, 1], [1, 0], [-0.02, -0.01]], np.float32))
    given: tuple[Any, ...] = (np.ones_like(Y), Y, one, zero, one)
    for slope, more in ((0.01, {}), (0.5, {"activation_alpha": 0.5}), (0, {"activation_alpha": 0})):
        dZ = run_any(GRADIENT, *given, Y=Y, activation="leaky_relu", outputs=["dZ"], **more).dZ
        np.testing.assert_array_equal(dZ, np.array([[slope, 1], [1, slope], [slope, slope]], np.float32))


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (-0.1, "has the value -0.1; the least allowed is 0"),
        (np.nan, "has the value nan; the least allowed is 0"),
        (np.inf, "is inf; expected a finite number, 0 or more"),
    ],
)
def test_a_slope_whose_output_does_not_tell_its_inputs_sign_is_refused(alpha: float, expected: str) -> None:
    given = operands("float32", "float32")
    found = message(AttributeValueError, run_any, FORWARD, **given, activation="leaky_relu", activation_alpha=alpha)
    assert found == f"{FORWARD}: attribute activation_alpha {expected}"


@pytest.mark.parametrize("order", ["C", "channels_last"])
def test_a_channel_far_from_zero_keeps_its_digits(order: str) -> None:
    """Squares of deviations from the mean: as differences of squares they would have none left."""
    X = in_order((4096 + np.random.default_rng(0).standard_normal((8, 3, 20, 20))).astype(np.float32), order)
    one = np.ones(3, np.float32)
    found, exact = gradkern.run(FORWARD, X, one, one), reference(FORWARD, {"X": X, "scale": one, "B": one})
    np.testing.assert_allclose(found.saved_inv_std, exact["saved_inv_std"], rtol=1e-6)
    np.testing.assert_allclose(found.saved_mean, exact["saved_mean"], rtol=1e-7)
    np.testing.assert_allclose(found.Y, exact["Y"], atol=4096 * float(np.finfo(np.float32).eps))


def test_running_statistics_are_those_of_onnx_and_of_pytorch() -> None:
    """By hand: a channel of 1, 2 and 6 has the mean 3 and the variance 14/3 over all, and 7 over one less."""
    X = np.array([[1.0], [2], [6]])
    old = (np.array([1.0]), np.array([10.0]))
    one = np.ones(1)
    outputs = ("running_mean", "running_var")
    found = gradkern.run(FORWARD, X, one, one, *old, momentum=0.75, outputs=outputs)
    np.testing.assert_allclose(found.running_mean, 0.75 * 1 + 0.25 * 3, rtol=1e-14)
    np.testing.assert_allclose(found.running_var, 0.75 * 10 + 0.25 * 14 / 3, rtol=1e-14)
    found = gradkern.run(FORWARD, X, one, one, *old, momentum=0.75, unbiased=1, outputs=outputs)
    np.testing.assert_allclose(found.running_var, 0.75 * 10 + 0.25 * 7, rtol=1e-14)
    found = gradkern.run(FORWARD, X[:1], one, one, *old, unbiased=1, outputs=outputs)
    assert np.isnan(found.running_var).all()
    found = gradkern.run(FORWARD, X[:0], one, one, *old, out=dict(zip(outputs, old, strict=True)))
    assert (old[0][0], old[1][0], found.saved_mean[0], found.saved_inv_std[0]) == (1, 10, 0, 0)


RELU, LEAKY, SILU, NONE = ({"activation": each} if each else {} for each in ("relu", "leaky_relu", "silu", ""))
EITHER = "activation relu takes input Y or input B; expected one of them, came"
LOST = "output dZ with activation relu needs input Y in place of B: B does not tell the residual"
NO_RESIDUAL = "output dZ is wanted with activation silu, whose gradient has no residual"
REFUSED: list[tuple[dict[str, str], tuple[str, ...], tuple[str, ...], str]] = [
    (RELU, (), (), f"{EITHER} neither"),
    (RELU, ("B", "Y"), (), f"{EITHER} Y and B"),
    (RELU, ("B",), ("dZ",), LOST),
    (LEAKY, ("B", "Y"), (), f"{EITHER} Y and B".replace("relu", "leaky_relu")),
    (LEAKY, ("B",), ("dZ",), LOST.replace("relu", "leaky_relu")),
    (SILU, (), (), "activation silu takes input B and not input Y; came neither"),
    (SILU, ("Y",), (), "activation silu takes input B and not input Y; came Y"),
    (SILU, ("B",), ("dZ",), NO_RESIDUAL),
    (NONE, ("Y",), (), "input Y is given with activation none, which does not need it"),
    (NONE, ("B",), (), "input B is given with activation none, which does not need it"),
]


@pytest.mark.parametrize(("attributes", "names", "outputs", "expected"), REFUSED)
def test_a_gradient_has_what_its_activation_needs_and_nothing_more(
    attributes: dict[str, str], names: tuple[str, ...], outputs: tuple[str, ...], expected: str
) -> None:
    given = {**upstream(operands("float32", "float32"), "none", ("B", "Y")), **attributes}
    call = {name: each for name, each in given.items() if name not in ("B", "Y") or name in names}
    wanted = ("dX", *outputs)
    assert message(ArgumentError, run_any, GRADIENT, **call, outputs=wanted) == f"{GRADIENT}: {expected}"


def test_running_statistics_need_those_so_far() -> None:
    X, one = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    expected = f"{FORWARD}: output running_mean is wanted; it is like input input_mean, which is not given"
    assert message(ArgumentError, run_any, FORWARD, X, one, one, outputs=["running_mean"]) == expected


@pytest.mark.torch
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("data", "parameter"), TYPES)
def test_forward_passes_agree_with_pytorchs(data: str, parameter: str, last: bool) -> None:
    import torch

    random = torch.Generator().manual_seed(0)
    X = (3 + torch.randn(6, 5, 3, 4, generator=random)).to(getattr(torch, data))
    X = X.to(memory_format=torch.channels_last) if last else X
    kind = getattr(torch, parameter)
    scale, bias, mean, variance = (torch.rand(5, generator=random).to(kind) + 0.5 for _ in range(4))
    ours, theirs = (mean.clone(), variance.clone()), (mean.clone(), variance.clone())
    named = dict(zip(("running_mean", "running_var"), ours, strict=True))
    found = run_any(FORWARD, X, scale, bias, *ours, out=named, momentum=0.7, epsilon=1e-3, unbiased=1)
    Y, *saved = torch.native_batch_norm(X, scale, bias, *theirs, True, 0.3, 1e-3)
    close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5} if data != "bfloat16" else {"rtol": 1.6e-2, "atol": 1e-2}
    torch.testing.assert_close(found.Y, Y, **close)
    assert found.Y.stride() == Y.stride()
    for one, other in zip((*saved, *theirs), (found.saved_mean, found.saved_inv_std, *ours), strict=True):
        torch.testing.assert_close(one.to(other.dtype), other, rtol=1e-5, atol=1e-5)
    for activation in ("relu", "leaky_relu", "silu"):
        found = gradkern.run(FORWARD, X, scale, bias, Z=X, epsilon=1e-3, activation=activation)
        expected = getattr(torch.nn.functional, activation)(
            torch.native_batch_norm(X.double(), scale.double(), bias.double(), None, None, True, 0.3, 1e-3)[0]
            + X.double()
        )
        torch.testing.assert_close(found.Y, expected.to(found.Y.dtype), **close)
