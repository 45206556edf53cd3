"""A batch norm and its gradient with activation, residual and second gradient on a GPU: every type and order, in one
launch and in two, on PyTorch's tensors, against float64.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.batch_norm_activation import Backward, Forward, backward, forward
from helpers.calls import run_any
from helpers.torch_on_gpu import back, there

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
TYPES = [(b, f, f), (b, b, b), (h, h, f), (f, f, f), (d, d, d)]
SHAPES = [
    (20, 64, 28, 28),
    (9, 30, 7, 5),
    (6, 24, 13, 12),
    (500, 1024),
    (777, 1001),
    (3, 5, 301, 303),
    (4, 8, 5, 16, 16),
    (33, 100, 7, 7),
    (1, 12, 1, 2),
    (4, 3, 5, 7),  # one block, whose second pass follows at once upon the last total: it waited for nobody once
    (3, 24, 8, 2),
]
LAST = pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
FORWARD = [("none", False), ("relu", False), ("relu", True), ("silu", False), ("silu", True)]
FORWARD += [(each, False) for each in ("relu6", "hardswish", "elu", "gelu")]
FORWARD += [("leaky_relu", False), ("leaky_relu", True)]
BACKWARD = [  # activation, residual, second gradient
    ("relu", False, False),
    ("relu", False, True),
    ("relu", True, False),
    ("relu", True, True),
    ("silu", False, False),
    *((each, False, False) for each in ("relu6", "hardswish", "elu", "gelu")),
    ("silu", False, True),
    ("none", True, True),
    ("leaky_relu", False, True),
    ("leaky_relu", True, False),
]


def check(case: Forward | Backward, last: bool, in_place: tuple[str, str] = ("", ""), searched: bool = False) -> None:
    tensors = {name: there(array, last) for name, array in case.inputs.items()}
    source, result = in_place
    is_forward = isinstance(case, Forward)
    # the kernel that takes everything; a search may find others for some gradients
    policy: dict[str, Any] = {} if is_forward or searched else {"kernel": "streaming"}
    how: dict[str, Any] = {"out": {result: tensors[source]}} if source else {}
    name = "BatchNormalization" if is_forward else "BatchNormalizationGrad"
    found = run_any(name, **tensors, **case.attributes, outputs=case.wanted, policy=policy, **how)
    if source:
        assert getattr(found, result) is tensors[source]
    case.check({each: back(getattr(found, each)) for each in case.wanted})


@LAST
@pytest.mark.parametrize("types", TYPES, ids=" ".join)
@pytest.mark.parametrize(("activation", "residual"), FORWARD)
def test_forward_in_every_type(activation: str, residual: bool, types: tuple[str, str, str], last: bool) -> None:
    check(forward(SHAPES[0], *types, activation=activation, residual=residual), last)


@LAST
@pytest.mark.parametrize("types", TYPES, ids=" ".join)
@pytest.mark.parametrize(("activation", "residual", "second"), BACKWARD)
def test_gradients_in_every_type(
    activation: str, residual: bool, second: bool, types: tuple[str, str, str], last: bool
) -> None:
    check(backward(SHAPES[0], *types, activation=activation, residual=residual, second=second), last)


@LAST
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_every_shape_and_order(shape: tuple[int, ...], last: bool) -> None:
    check(forward(shape, b, f, f, activation="relu", residual=True, unbiased=1), last)
    check(backward(shape, b, f, f, residual=True, second=True), last)
    check(backward(shape, h, f, f, activation="silu"), last)
    check(forward(shape, h, f, f, activation="leaky_relu"), last)
    check(backward(shape, b, f, f, activation="leaky_relu"), last)
    check(forward(shape, f, f, f), last)


@LAST
def test_a_search_finds_a_kernel_that_is_right(last: bool) -> None:
    """By the usual route, of the first kernel that fits."""
    check(backward(SHAPES[0], b, f, f, residual=True, second=True), last, searched=True)


@LAST
@pytest.mark.parametrize("in_place", [("X", "Y"), ("Z", "Y"), ("input_mean", "running_mean")], ids=" ".join)
def test_results_over_what_they_are_made_from(in_place: tuple[str, str], last: bool) -> None:
    check(forward(SHAPES[0], b, f, f, activation="relu", residual=True), last, in_place)


@LAST
@pytest.mark.parametrize("in_place", [("dY", "dX"), ("X", "dX"), ("dY", "dZ"), ("dY2", "dZ")], ids=" ".join)
def test_gradients_over_what_they_are_made_from(in_place: tuple[str, str], last: bool) -> None:
    check(backward(SHAPES[0], b, f, f, residual=True, second=True), last, in_place)


@LAST
def test_a_mean_far_from_zero_costs_no_digits(last: bool) -> None:
    check(forward(SHAPES[0], f, f, f, far=1500, unbiased=1), last)


@LAST
def test_the_same_bits_every_time(last: bool) -> None:
    case = forward((64, 32, 28, 28), b, f, f, activation="relu", residual=True)
    tensors = {name: there(array, last) for name, array in case.inputs.items()}
    how: dict[str, Any] = {**case.attributes, "outputs": case.wanted, "policy": {}}
    first = run_any("BatchNormalization", **tensors, **how)
    for _ in range(50):
        again = run_any("BatchNormalization", **tensors, **how)
        assert all(torch.equal(getattr(first, name), getattr(again, name)) for name in case.wanted)


def test_a_batch_of_nothing_leaves_the_running_statistics() -> None:
    case = forward((0, 5, 4), b, f, f)
    tensors = {name: there(array) for name, array in case.inputs.items()}
    found = run_any("BatchNormalization", **tensors, outputs=case.wanted)
    assert back(found.saved_mean).tolist() == back(found.saved_inv_std).tolist() == [0] * 5
    for name in ("mean", "var"):
        assert torch.equal(getattr(found, f"running_{name}"), tensors[f"input_{name}"])


def test_a_gradient_of_nothing_is_zero() -> None:
    case = backward((1, 5, 4), b, f, f, residual=True)
    tensors = {name: there(array) for name, array in case.inputs.items()}
    tensors |= {name: tensors[name][:0] for name in ("dY", "X", "Y")}
    found = run_any("BatchNormalizationGrad", **tensors, activation="relu", outputs=case.wanted)
    assert found.dX.shape == found.dZ.shape == (0, 5, 4)
    assert back(found.dScale).tolist() == back(found.dBias).tolist() == [0] * 5
