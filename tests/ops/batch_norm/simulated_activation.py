"""A batch norm and its gradient with an activation and a residual, from the plan to the results, under the CUDA
simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.batch_norm_activation import Backward, Forward, backward, forward
from helpers.simulate_plans import addresses, arrays, device_in_python, tensors

from gradkern.call import Call
from gradkern.cuda.device import Device
from gradkern.kernels.channels.activation_alpha import with_alpha
from gradkern.ops.batch_norm.cuda import forward as forward_plan
from gradkern.ops.batch_norm.cuda import streaming
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.policy import Policy
from gradkern.search.implementation import candidates_of

b, h, f, d = "bfloat16", "float16", "float32", "float64"
LAYOUTS = [  # planes, vectors of two planes, columns, vectors of two rows, planes that are inner arrays
    ((4, 3, 5, 8), False),
    ((4, 3, 5, 7), False),
    ((9, 24, 3, 3), True),
    ((6, 5, 3, 3), True),
    ((70, 24), False),
    ((3, 2, 1201), False),
]


def every_seventh(*choices: Sequence[Any]) -> list[Any]:
    """All of their product, most with --every-kernel alone: of each choice all take turns in the others."""
    every = enumerate(product(*choices))
    return [pytest.param(*each, marks=pytest.mark.every_kernel if n % 7 else ()) for n, each in every]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = device_in_python(monkeypatch, threads=32)
    monkeypatch.setattr(forward_plan, "device_of", lambda _call: made)
    return made


def plan_of(case: Forward | Backward, device: Device, given: Any, wanted: Any) -> Any:
    if isinstance(case, Backward):
        problem = Problem(**given, **wanted, activation=with_alpha(case.attributes))
        (candidate,) = candidates_of(streaming, problem, device)
        candidate.prepare()
        return candidate.alone
    return forward_plan.plan(Call("", given, wanted, case.attributes, {}, frozenset(), "cuda:0", Policy()))


def check(
    case: Forward | Backward,
    device: Device,
    last: bool = False,
    in_place: tuple[str, str] = ("", ""),
) -> None:
    read, write = arrays(case.inputs, case.outputs(), last)
    source, result = in_place
    if source:
        write[result] = read[source]
    for name, (held, _, _) in read.items():
        if name != source:
            held.freeze()
    plan = plan_of(case, device, tensors(read), tensors(write))
    plan(addresses(read), addresses(write), 0)
    for held in (each[0] for each in (*read.values(), *write.values())):
        held.check()
    case.check({name: array for name, (_, array, _) in write.items()})


@pytest.mark.parametrize(
    ("layout", "kind"),
    every_seventh(
        LAYOUTS,
        [
            ("relu", False, (b, f, f)),
            ("silu", True, (f, f, f)),
            ("none", True, (h, h, h)),
            ("leaky_relu", False, (h, h, f)),
            ("leaky_relu", True, (d, d, d)),
            ("gelu", True, (b, f, f)),
        ],
    ),
    ids=str,
)
def test_every_order_forward(device: Device, layout: Any, kind: Any) -> None:
    (sizes, last), (activation, residual, types) = layout, kind
    check(forward(sizes, *types, activation=activation, residual=residual), device, last)


@pytest.mark.parametrize(
    ("layout", "kind"),
    every_seventh(
        LAYOUTS,
        [
            ("relu", False, False, (b, f, f)),
            ("relu", True, True, (h, h, f)),
            ("relu", True, False, (d, d, d)),
            ("silu", False, True, (f, f, f)),
            ("none", True, True, (b, b, b)),
            ("leaky_relu", False, True, (b, b, f)),
            ("leaky_relu", True, False, (f, f, f)),
            ("gelu", False, False, (f, f, f)),
        ],
    ),
    ids=str,
)
def test_every_order_backward(device: Device, layout: Any, kind: Any) -> None:
    (sizes, last), (activation, residual, second, types) = layout, kind
    check(backward(sizes, *types, activation=activation, residual=residual, second=second), device, last)


@pytest.mark.parametrize(
    "wanted", [("dX",), ("dZ",), ("dBias", "dZ"), ("dX", "dZ"), ("dScale",), ("dX", "dBias")], ids=" ".join
)
def test_only_the_wanted_gradients_are_written(device: Device, wanted: tuple[str, ...]) -> None:
    case = partial(backward, (9, 3, 5, 7), h, residual=True, second=True, wanted=wanted)
    check(case(), device)


@pytest.mark.parametrize(
    "wanted",
    [("Y",), ("saved_mean",), ("Y", "running_var"), ("running_mean", "saved_inv_std"), ("running_mean", "running_var")],
    ids=" ".join,
)
def test_only_the_wanted_results_are_written(device: Device, wanted: tuple[str, ...]) -> None:
    check(forward((9, 3, 5, 7), b, f, f, activation="relu", wanted=wanted), device)


@pytest.mark.parametrize(
    ("last", "in_place"),
    every_seventh((False, True), [("dY", "dX"), ("X", "dX"), ("dY", "dZ"), ("dY2", "dZ")]),
    ids=str,
)
def test_gradients_may_be_written_over_what_they_are_made_from(
    device: Device, last: bool, in_place: tuple[str, str]
) -> None:
    check(backward((40, 8, 3, 3), f, residual=True, second=True), device, last, in_place)


@pytest.mark.parametrize(
    ("last", "in_place"),
    every_seventh((False, True), [("X", "Y"), ("Z", "Y"), ("input_var", "running_var")]),
    ids=str,
)
def test_results_may_be_written_over_what_they_are_made_from(
    device: Device, last: bool, in_place: tuple[str, str]
) -> None:
    case = forward((40, 8, 3, 3), f, f, f, activation="relu", residual=True)
    check(case, device, last, in_place)


@pytest.mark.parametrize("last", [False, True])
def test_a_mean_far_from_zero_and_outliers_cost_no_digits(device: Device, last: bool) -> None:
    check(forward((40, 4, 8), f, f, f, far=1500, unbiased=1), device, last)
    case = forward((40, 4, 8), f, f, f)
    case.inputs["X"][7, :, 3] *= 1000
    check(case, device, last)


def test_a_channel_of_equal_elements_and_one_of_one(device: Device) -> None:
    case = forward((6, 4, 8), f, f, f)
    case.inputs["X"][:, 2] = np.float32(1234.567)
    check(case, device)
    check(forward((1, 12), f, f, f, unbiased=0), device)
    single = forward((1, 12), f, f, f, unbiased=1, wanted=("running_var",))
    single.check({"running_var": np.full(12, np.nan, f)})
    check(single, device)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_a_NaN_passes_relu_as_in_PyTorch(device: Device, activation: str) -> None:
    case = backward((9, 8, 16), f, activation=activation, residual=True, wanted=("dZ",))
    case.inputs["Y"][2, 3, 4] = np.nan
    check(case, device)
