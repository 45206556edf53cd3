"""Group norms beyond the registry's examples: layouts, numbers of samples and channels, residuals, edges, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.reference import reference
from helpers.terms import terms
from helpers.tolerance import assert_close, assert_within_terms

import gradkern

TYPES = ["float32", "float64", "bfloat16", "float16"]
ACTIVATIONS = ["none", "relu", "leaky_relu", "silu", "gelu"]
SHAPES = [(3, 8), (2, 6, 5), (2, 12, 3, 7), (1, 4, 2, 3, 4)]
OUTPUTS = ("dX", "dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad")


def drawn(shape: tuple[int, ...], groups: int, dtype: str, parameters: str = "") -> dict[str, np.ndarray]:
    """All inputs of GroupNormGrad."""
    random, U = np.random.default_rng(0), "float64" if dtype == "float64" else "float32"
    draw = random.standard_normal
    arrays = {"dY": draw(shape), "X": draw(shape), "mean": draw((shape[0], groups)) / 4}
    arrays |= {"inv_std": random.uniform(0.5, 2, (shape[0], groups)), "gamma": draw(shape[1]), "beta": draw(shape[1])}
    arrays |= {"sample_scale": draw(shape[:2]), "sample_shift": draw(shape[:2]), "residual_grad": draw(shape)}
    types: dict[str, str] = {"mean": U, "inv_std": U, "gamma": parameters or dtype, "beta": parameters or dtype}
    return {name: each.astype(types.get(name, dtype)) for name, each in arrays.items()}


def in_order(inputs: dict[str, np.ndarray], order: str) -> tuple[dict[str, np.ndarray], int]:
    """The data channels-last by strides, or by its shape; and the attribute channels_last."""
    if order == "planes":
        return inputs, 0
    moved = {
        name: np.ascontiguousarray(np.moveaxis(each, 1, -1)) if name in ("dY", "X", "residual_grad") else each
        for name, each in inputs.items()
    }
    if order == "last":
        return moved, 1
    return {name: np.moveaxis(each, -1, 1) if each is not inputs[name] else each for name, each in moved.items()}, 0


@pytest.mark.parametrize("order", ["planes", "strides", "last"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_with_everything_agree_with_float64(shape: tuple[int, ...], activation: str, order: str) -> None:
    for groups in {1, 2, shape[1]}:
        inputs, last = in_order(drawn(shape, groups, "float32"), order)
        attributes: dict[str, Any] = {
            "groups": groups, "activation": activation, "activation_alpha": 0.2, "channels_last": last
        }  # fmt: skip
        found = run_any("GroupNormGrad", **inputs, **attributes, outputs=OUTPUTS)
        expected, of = reference("GroupNormGrad", inputs, attributes), terms("GroupNormGrad", inputs, attributes)
        for name, each in found._asdict().items():
            assert_within_terms(each, expected[name], of[name])
        assert found.dX.strides == inputs["X"].strides


@pytest.mark.parametrize("order", ["planes", "strides"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_outputs_with_numbers_of_samples_agree_with_float64(activation: str, order: str) -> None:
    for shape in SHAPES:
        inputs, _ = in_order(drawn(shape, 2, "float32"), order)
        given = {"X": inputs["X"], "scale": inputs["gamma"], "bias": inputs["beta"]}
        given |= {name: inputs[name] for name in ("sample_scale", "sample_shift")}
        attributes: dict[str, Any] = {"num_groups": 2, "activation": activation, "activation_alpha": 0.2}
        found = run_any("GroupNormalization", **given, **attributes, outputs=["Y", "mean", "inv_std"])
        for name, each in reference("GroupNormalization", given, attributes).items():
            assert_close("GroupNormalization", name, getattr(found, name), each)
        assert found.Y.strides == inputs["X"].strides


@pytest.mark.parametrize("residual_grad", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_may_lie_over_an_input(dtype: str, residual_grad: bool) -> None:
    for order in ("planes", "strides"):
        for source in ("dY", "X", *["residual_grad"] * residual_grad):
            inputs, _ = in_order(drawn((2, 6, 40), 3, dtype), order)
            if not residual_grad:
                del inputs["residual_grad"]
            expected = reference("GroupNormGrad", inputs, {"groups": 3, "activation": "silu"})
            found = run_any(
                "GroupNormGrad", **inputs, groups=3, activation="silu", outputs=OUTPUTS, out={"dX": inputs[source]}
            )
            for name, each in found._asdict().items():
                assert_close("GroupNormGrad", name, each, expected[name])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_a_mean_far_above_the_deviation_costs_no_digits(dtype: str, groups: int) -> None:
    """The data is 1000 in the mean with a deviation of 1, rounded to the type. PyTorch's sums of dY X and dY cancel."""
    random, shape = np.random.default_rng(0), (2, 16, 300)
    X, dY = (1000 + random.standard_normal(shape)).astype(dtype), random.standard_normal(shape).astype(dtype)
    gamma = random.standard_normal(16).astype(dtype)
    beta = random.standard_normal(16).astype(dtype)
    for order in ("planes", "strides"):
        given, _ = in_order({"X": X, "dY": dY}, order)
        found = run_any(
            "GroupNormalization", given["X"], gamma, beta, num_groups=groups, outputs=["Y", "mean", "inv_std"]
        )
        exact = reference("GroupNormalization", {"X": X, "scale": gamma, "bias": beta}, {"num_groups": groups})
        assert_close("GroupNormalization", "inv_std", found.inv_std, exact["inv_std"])
        assert_close("GroupNormalization", "mean", found.mean, exact["mean"])
        inputs = {**given, "mean": found.mean, "inv_std": found.inv_std, "gamma": gamma, "beta": beta}
        gradient = run_any("GroupNormGrad", **inputs, groups=groups)
        of_saved = reference("GroupNormGrad", inputs, {"groups": groups})
        centred = X.astype(np.float64) - found.mean.astype(np.float64).repeat(16 // groups, 1)[..., None]
        of = terms("GroupNormGrad", {**inputs, "X": centred, "mean": 0 * found.mean}, {"groups": groups})
        for name, each in gradient._asdict().items():
            assert_within_terms(each, of_saved[name], of[name])


@pytest.mark.parametrize("dtype", TYPES)
def test_a_group_of_one_element_has_no_gradient_but_the_residuals(dtype: str) -> None:
    inputs = drawn((5, 8), 8, dtype)
    inputs["mean"] = inputs["X"].astype(inputs["mean"].dtype)
    found = run_any("GroupNormGrad", **inputs, groups=8, activation="silu")
    np.testing.assert_array_equal(found.dX, inputs["residual_grad"])
    Y = run_any("GroupNormalization", inputs["X"], inputs["gamma"], inputs["beta"], num_groups=8).Y
    np.testing.assert_array_equal(Y, np.broadcast_to(inputs["beta"], Y.shape))


@pytest.mark.parametrize("skip_shape", [(2, 4, 5, 6), (2, 6), (2, 1, 1, 6)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_sum_with_a_residual_is_rounded_and_given_out(
    dtype: str, biased: bool, skip_shape: tuple[int, ...]
) -> None:
    random = np.random.default_rng(0)
    given = {"X": random.standard_normal((2, 4, 5, 6)).astype(dtype)}
    given |= {name: random.standard_normal(6).astype(dtype) for name in ("gamma", "beta")}
    given["skip"] = random.standard_normal(skip_shape).astype(dtype)
    if biased:
        given["bias"] = random.standard_normal(6).astype(dtype)
    attributes: dict[str, Any] = {"groups": 2, "activation": 1}
    for outputs in (["Y", "S", "mean", "inv_std"], ["Y"]):
        found = run_any("SkipGroupNorm", **given, **attributes, outputs=outputs)
        for name in outputs:
            expected = reference("SkipGroupNorm", given, attributes)[name]
            assert_close("SkipGroupNorm", name, getattr(found, name), expected)


def test_instance_norm_is_group_norm_with_a_group_for_each_channel() -> None:
    inputs = drawn((2, 6, 4, 5), 6, "float32")
    given = inputs["X"], inputs["gamma"], inputs["beta"]
    ours = run_any("InstanceNormalization", *given, activation="gelu", outputs=["output", "mean", "inv_std"])
    other = run_any("GroupNormalization", *given, num_groups=6, activation="gelu", outputs=["Y", "mean", "inv_std"])
    for one, two in zip(ours, other, strict=True):
        np.testing.assert_array_equal(one, two)


def test_parameters_may_be_left_out() -> None:
    inputs = drawn((2, 6, 4, 5), 3, "float32")
    given = {name: inputs[name] for name in ("dY", "X", "mean", "inv_std")}
    found = run_any("GroupNormGrad", **given, groups=3, activation="silu", outputs=["dX"])
    assert_close(
        "GroupNormGrad", "dX", found.dX, reference("GroupNormGrad", given, {"groups": 3, "activation": "silu"})["dX"]
    )
    Y = run_any("GroupNormalization", inputs["X"], num_groups=3).Y
    assert_close(
        "GroupNormalization", "Y", Y, reference("GroupNormalization", {"X": inputs["X"]}, {"num_groups": 3})["Y"]
    )


@pytest.mark.parametrize(
    ("changes", "attributes", "message"),
    [
        (
            {name: np.ones((2, 4), np.float32) for name in ("mean", "inv_std")},
            {"groups": 4},
            r"C/G is 6/4; expected a whole number",
        ),
        ({}, {"groups": 0}, r"groups has the value 0; the least allowed is 1"),
        ({}, {"groups": 3, "activation": "tanh"}, r"activation is 'tanh'"),
        ({}, {"groups": 3, "activation_alpha": float("inf")}, r"activation_alpha is inf"),
        ({"mean": np.zeros((2, 2), np.float32)}, {"groups": 3}, r"input mean"),
        ({"inv_std": np.zeros(3, np.float32)}, {"groups": 3}, r"input inv_std"),
        ({"beta": None}, {"groups": 3, "activation": "silu"}, r"activation silu takes input beta where gamma is given"),
        ({"gamma": None, "beta": None}, {"groups": 3, "outputs": ["dgamma"]}, r"gamma"),
        ({"sample_scale": np.zeros((2, 5), np.float32)}, {"groups": 3}, r"input sample_scale"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_it(
    changes: dict[str, Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(gradkern.GradkernError, match=rf"^GroupNormGrad: .*{message}"):
        run_any("GroupNormGrad", **{**drawn((2, 6, 5), 3, "float32"), **changes}, **attributes)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("groups", [1, 3, 12])
def test_gradients_agree_with_pytorchs(dtype: str, groups: int) -> None:
    import torch

    kind, random = getattr(torch, dtype), np.random.default_rng(0)
    X, dY = (torch.from_numpy(random.standard_normal((3, 12, 5, 4))).to(kind) for _ in range(2))
    gamma, beta = (torch.from_numpy(random.standard_normal(12)).to(kind).requires_grad_() for _ in range(2))
    X.requires_grad_()
    Y = torch.nn.functional.silu(torch.nn.functional.group_norm(X, groups, gamma, beta))
    Y.backward(dY)
    ours = gradkern.run(
        "GroupNormalization", X.detach(), gamma.detach(), beta.detach(), num_groups=groups, activation="silu",
        outputs=["Y", "mean", "inv_std"],
    )  # fmt: skip
    gradients = gradkern.run(
        "GroupNormGrad", dY, X.detach(), ours.mean, ours.inv_std, gamma.detach(), beta.detach(), groups=groups,
        activation="silu",
    )  # fmt: skip
    narrow = dtype in ("bfloat16", "float16")
    close: dict[str, Any] = {"rtol": 2e-2, "atol": 5e-2} if narrow else {"rtol": 1e-4, "atol": 1e-5}
    for one, other in zip((ours.Y, *gradients), (Y.detach(), X.grad, gamma.grad, beta.grad), strict=True):
        torch.testing.assert_close(one, other, **close)
