"""Calls on tensors of a GPU that are like earlier ones find their plan without a signature, and only such calls.

There need not be a GPU: tensors on the CPU are taken for its own, and no plan computes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.calls import OPERATORS, arguments, message, prepare_any, run_any

import gradkern
from gradkern import ArgumentError, PolicyError, ProviderError, plan_cache
from gradkern.arrays import device, torch_guards
from gradkern.arrays.kind import View
from gradkern.contract.request import Views
from gradkern.dispatch import operands, run
from gradkern.dispatch import planner as making
from gradkern.dispatch.plan_cache import Shortcuts, Statistics

GELU, LAYER = "BiasGeluGrad_dX", "LayerNormalizationGrad"

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("empty_plan_cache")]


class Elsewhere:
    """Tensors on the CPU, said to be on a GPU."""

    device = "cuda:0"
    finish = None
    stream = staticmethod(lambda: 7)

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def maker(self, tensor: Any) -> Any:
        return lambda stream: (self._torch.empty(tensor.shape), 16)


class Plan:
    kernel, scratch = "fake", 0

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def __call__(self, *arguments: Any) -> None:
        self.runs.append(arguments)


class Planner:
    """The calls that were planned, and their plans; and how often arrays were read for a signature."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.plans: list[Plan] = []
        self.reads = 0

    def plan(self, binder: Any, provider: str, call: Any) -> Plan:
        self.calls.append(call)
        self.plans.append(Plan())
        return self.plans[-1]


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    torch = pytest.importorskip("torch")
    made, kind = Planner(), Elsewhere(torch)
    read, input_views = operands.read, operands.input_views

    def elsewhere(binder: Any, arrays: Any, out: Any) -> Any:
        made.reads += 1
        given, missing = binder.given(arrays)
        found = None if out or not arrays[0].is_cpu else torch_guards.of_tensors(given)
        if found is None:
            return read(binder, arrays, out)
        keys = found[0] if missing is None else operands._with_gaps(found[0], missing)
        return keys, found[1], kind, (), (), frozenset()

    def views(binder: Any, arrays: Any, out: Any) -> Any:
        seen = input_views(binder, arrays)
        inputs = {
            name: View(each.tensor, each.buffer, kind.device, kind)
            for name, each in zip(binder.inputs, seen, strict=True)
            if each is not None
        }
        return Views(inputs, {}, frozenset())

    monkeypatch.setattr(run, "shortcuts", Shortcuts(1024, 16))
    monkeypatch.setattr(run, "read", elsewhere)
    monkeypatch.setattr(run, "views_of", views)
    monkeypatch.setattr(making, "unavailable", lambda provider: None)
    monkeypatch.setattr(device, "refuse_capture", lambda *_: None)  # which asks the driver
    monkeypatch.setattr(making, "_ask", lambda binder, provider, call: made.plan(binder, provider.name, call))
    return made


def given(name: str, **changes: Any) -> dict[str, Any]:
    import torch

    found = arguments(name, **changes)
    return {key: torch.tensor(each) if isinstance(each, np.ndarray) else each for key, each in found.items()}


def warm(name: str, **changes: Any) -> dict[str, Any]:
    """A call made so often that the next like it needs no signature."""
    call = given(name, **changes)
    for _ in range(3):
        run_any(name, **call)
    return call


@pytest.mark.parametrize("name", list(OPERATORS))
def test_a_call_like_earlier_ones_is_not_read_for_a_signature(planner: Planner, name: str) -> None:
    warm(name)
    assert (len(planner.calls), planner.reads) == (1, 2)
    call = given(name)
    run_any(name, **call)
    inputs = [call.pop(key.name, None) for key in OPERATORS[name].inputs]
    plan = prepare_any(name, *inputs, **call)
    run_any(name, *inputs, **call)
    assert (len(planner.calls), planner.reads) == (1, 2)
    assert plan.call is planner.calls[0]
    assert plan_cache.statistics()[:3] == (5, 1, 1)
    read, _, stream = planner.plans[0].runs[-1]
    assert list(read) == [each.data_ptr() for each in inputs if each is not None]
    assert stream == 7


def test_an_optional_input_makes_another_call(planner: Planner) -> None:
    name = "BatchNormalizationGradFromSums"
    warm(name)
    warm(name, count=None, counts=np.ones(3, np.float32))
    assert [list(call.inputs)[-1] for call in planner.calls] == ["dBias", "counts"]
    reads = planner.reads
    for changes in ({}, {"count": None, "counts": np.ones(3, np.float32)}):
        gradkern.run(name, **given(name, **changes))
    assert [len(plan.runs) for plan in planner.plans] == [4, 4]
    assert planner.reads == reads


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "type": (GELU, lambda call: {key: each.double() for key, each in call.items()}),
    "strides": (GELU, lambda call: {**call, "X": call["X"].t().contiguous().t()}),
    "wanted outputs": (GELU, lambda call: {**call, "outputs": ["dB"]}),
    "an attribute": (LAYER, lambda call: {**call, "axis": 1}),
    "provider": (GELU, lambda call: {**call, "provider": "cuda"}),
    "policy": (GELU, lambda call: {**call, "policy": {"search": "default"}}),
    "a policy object": (GELU, lambda call: {**call, "policy": gradkern.Policy(deterministic=True)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_part_of_the_signature_makes_another_plan(planner: Planner, change: str) -> None:
    name, changed = CHANGES[change]
    call = warm(name)
    other = changed(call)
    for _ in range(4):
        run_any(name, **other)
    assert len(planner.calls) == 2
    run_any(name, **call)
    assert len(planner.calls) == 2
    assert len(planner.plans[0].runs) == 4


def test_the_policy_of_a_block_makes_another_plan_and_the_usual_one_does_not(planner: Planner) -> None:
    call = warm(GELU)
    with gradkern.policy(deterministic=True):
        gradkern.run(GELU, **call)
    assert [each.policy for each in planner.calls] == [gradkern.Policy(), gradkern.Policy(deterministic=True)]
    for usual in (gradkern.Policy(), {}, {"deterministic": False}):
        gradkern.run(GELU, **call, policy=usual)
    assert len(planner.calls) == 2


def test_equal_values_of_other_types_are_refused_as_ever(planner: Planner) -> None:
    call = warm(LAYER, axis=1)
    for value in (1.0, True, np.array(1.0), {}):
        with pytest.raises(gradkern.AttributeValueError):
            gradkern.run(LAYER, **{**call, "axis": value})


def test_what_is_wrong_is_said_in_the_same_order(planner: Planner) -> None:
    call = warm(GELU)
    grown = {**call, "X": call["X"].clone().requires_grad_()}
    wrong: dict[str, Any] = {"policy": {"search": "fast"}}
    assert "requires grad" in message(ArgumentError, gradkern.run, GELU, **grown, **wrong)
    assert "search" in message(PolicyError, gradkern.run, GELU, **call, **wrong)
    assert "no provider" in message(ProviderError, gradkern.run, GELU, **call, provider=["cuda"])
    assert "missing" in message(ArgumentError, gradkern.run, GELU, **{**call, "X": None}, **wrong)
    assert len(planner.plans[0].runs) == 3


def test_a_plan_that_the_cache_forgot_is_made_again(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    call = warm(GELU)
    plan_cache.clear()
    assert plan_cache.statistics() == Statistics(0, 0, 0, 1024)
    gradkern.run(GELU, **call)
    assert len(planner.calls) == 2
    monkeypatch.setattr(plan_cache, "_bound", 1)
    warm(LAYER)
    warm(GELU)
    assert [each.operator for each in planner.calls] == [GELU, GELU, LAYER, GELU]
    assert all(len(each) == 1 for each in run.shortcuts._rows.values())


def test_what_is_remembered_has_a_bound(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(run, "shortcuts", Shortcuts(bound=3, alike=2))
    for size in range(1, 6):
        warm(GELU, dY=np.zeros((6, size), np.float32), X=np.zeros((6, size), np.float32), B=np.zeros(size, np.float32))
    assert len(run.shortcuts._rows) <= 3
    call = given(GELU)
    for order in range(1, 5):  # of one shape, told apart by their strides
        call["X"] = torch.zeros(6, 40 * order)[:, ::order]
        for _ in range(3):
            gradkern.run(GELU, **call)
    assert all(len(each) <= 2 for each in run.shortcuts._rows.values())


def test_tensors_on_the_host_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "shortcuts", Shortcuts(1024, 16))
    assert torch_guards.guard_of(tuple(given(GELU).values())) is not None  # recognised, as tensors of a GPU are
    warm(GELU)
    assert not run.shortcuts._rows
