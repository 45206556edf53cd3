"""Calls on tensors of a GPU that are like earlier ones find their plan without a signature, and only such calls.

There need not be a GPU: tensors on the CPU are taken for its own, and no plan computes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.calls import OPERATORS, arguments, message, prepare_any, run_any
from helpers.elsewhere import Planner, take_for_a_gpus

import gradkern
from gradkern import ArgumentError, OutputError, PolicyError, ProviderError, plan_cache
from gradkern.arrays import torch_guards
from gradkern.contract.request import request_of
from gradkern.dispatch import run
from gradkern.dispatch.plan_cache import Shortcuts, Statistics
from gradkern.policy import PolicyFields

GELU, LAYER, BATCH = "BiasGeluGrad_dX", "LayerNormalizationGrad", "BatchNormalizationGrad"

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("empty_plan_cache")]


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    return take_for_a_gpus(monkeypatch)


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


@pytest.mark.parametrize("name", [name for name, each in OPERATORS.items() if "cuda" in each.providers])
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
    call = planner.calls[0]
    arrays = [each for each, of in zip(inputs, OPERATORS[name].inputs, strict=True) if of.name in call.inputs]
    assert list(read[: len(arrays)]) == [each.data_ptr() for each in arrays]
    assert len(read) == len(arrays) + len(call.scalars)
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


def in_place(**changes: Any) -> dict[str, Any]:
    """A call that writes dX where dY is, and dScale into an array of its own."""
    call: dict[str, Any] = {"outputs": ("dX", "dScale", "dBias"), **given(BATCH, **changes)}
    return {**call, "out": {"dScale": call["Scale"].clone(), "dX": call["dY"]}}


def test_calls_in_place_are_not_read_for_a_signature(planner: Planner) -> None:
    for call in [in_place() for _ in range(3)]:
        versions = [each._version for each in call["out"].values()]
        results = gradkern.run(BATCH, **call)
        assert results.dX is call["dY"]
        assert [each._version for each in call["out"].values()] == [each + 1 for each in versions]
        read, written, _ = planner.plans[0].runs[-1]
        assert written == (read[0], call["out"]["dScale"].data_ptr(), results.dBias.data_ptr())
        assert read[:3] == tuple(call[name].data_ptr() for name in ("dY", "X", "Scale"))
    assert (len(planner.calls), planner.reads) == (1, 2)
    assert planner.calls[0].in_place == {("dY", "dX")}


def test_a_call_in_place_is_told_apart_from_calls_nearly_like_it(planner: Planner) -> None:
    import torch

    call = in_place()
    for _ in range(2):
        gradkern.run(BATCH, **call)
    shape = tuple(call["X"].shape)
    strided, half = torch.randn(*shape[::-1]).permute(*reversed(range(len(shape)))), torch.randn(shape).half()
    unaligned = torch.randn(call["X"].numel() + 1)[1:].view(shape)
    others: dict[str, dict[str, Any]] = {
        "apart": {**call, "out": {"dScale": call["out"]["dScale"], "dX": call["dY"].clone()}},
        "in place of the other": {**call, "out": {"dScale": call["out"]["dScale"], "dX": call["X"]}},
        "shape": in_place(dY=call["dY"][:1].clone(), X=call["X"][:1].clone()),
        "strides": in_place(dY=strided),
        "type": in_place(dY=half, X=half.clone()),
        "alignment": in_place(dY=unaligned),
    }
    for count, (name, other) in enumerate(others.items(), 2):
        for _ in range(2):
            gradkern.run(BATCH, **other)
        assert len(planner.calls) == count, name
    assert [len(plan.runs) for plan in planner.plans] == [2] * 7
    reads = planner.reads
    for _ in range(2):  # another tensor of the same memory: it is read each time, and the plan the first one's
        gradkern.run(BATCH, **{**call, "out": {**call["out"], "dX": call["dY"].view(shape)}})
    assert (len(planner.calls), planner.reads, len(planner.plans[0].runs)) == (7, reads + 2, 4)
    for wrong in (call["dY"], call["Scale"], torch.empty(0)):
        with pytest.raises(gradkern.GradkernError):
            gradkern.run(BATCH, **{**call, "out": {**call["out"], "dScale": wrong}})
    overlapping = torch.randn(call["X"].numel() + 4)
    parts = [overlapping[start : call["X"].numel() + start].view(shape) for start in (0, 4)]
    with pytest.raises(gradkern.OutputError, match="out dX overlaps input X"):
        gradkern.run(BATCH, **{**call, "X": parts[0], "out": {**call["out"], "dX": parts[1]}})


def test_the_policy_of_a_block_makes_another_plan_and_the_usual_one_does_not(planner: Planner) -> None:
    call = warm(GELU)
    with gradkern.policy(deterministic=True):
        gradkern.run(GELU, **call)
    assert [each.policy for each in planner.calls] == [gradkern.Policy(), gradkern.Policy(deterministic=True)]
    usual: list[gradkern.Policy | PolicyFields] = [gradkern.Policy(), {}, {"deterministic": False}]
    for each in usual:
        gradkern.run(GELU, **call, policy=each)
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
    assert len(run.shortcuts._known.entries()) == 2


def test_what_is_remembered_has_a_bound(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(run, "shortcuts", Shortcuts(bound=3, alike=2))
    for size in range(1, 6):
        warm(GELU, dY=np.zeros((6, size), np.float32), X=np.zeros((6, size), np.float32), B=np.zeros(size, np.float32))
    assert len(run.shortcuts._known.entries()) <= 3
    call = given(GELU)
    for order in range(1, 5):  # of one shape, told apart by their strides
        call["X"] = torch.zeros(6, 40 * order)[:, ::order]
        for _ in range(3):
            gradkern.run(GELU, **call)
    assert max(len(rows) for rows in run.shortcuts._known._table.values()) == 2


def test_tensors_on_the_host_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "shortcuts", Shortcuts(1024, 16))
    assert torch_guards.guard_of(tuple(given(GELU).values())) is not None  # recognised, as tensors of a GPU are
    warm(GELU)
    assert not run.shortcuts._known.entries()


def test_a_request_like_that_of_an_earlier_call_is_answered_and_no_other(planner: Planner) -> None:
    warm(LAYER)
    reads = planner.reads
    call = given(LAYER)
    found = run.run_known(request_of(LAYER, (), dict(call)))
    assert [each.shape for each in found] == [each.shape for each in run_any(LAYER, **call)]
    assert run.run_known(request_of(LAYER, (), dict(call), ["X_grad"])) is None
    assert run.run_known(request_of(LAYER, (), {**call, "X": call["X"].double()})) is None
    assert (len(planner.calls), planner.reads) == (1, reads)


def test_a_request_with_arrays_to_write_is_known_if_they_are_apart(planner: Planner) -> None:
    call = given(LAYER)
    written = torch_like(call["X"])
    for _ in range(3):
        run_any(LAYER, **call, out={"X_grad": written})
    result = run.run_known(request_of(LAYER, (), dict(call), out={"X_grad": written}))
    assert result.X_grad is written
    assert run.run_known(request_of(LAYER, (), dict(call), out={"X_grad": call["scale"]})) is None


def torch_like(tensor: Any) -> Any:
    import torch

    return torch.empty_like(tensor)


class Remembered:
    """A Direct operator of layer norm's gradient, and which of its calls it did not answer by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from gradkern.torch import direct

        self.missed: list[Any] = []
        names = [each.name for each in OPERATORS[LAYER].inputs]
        call = given(LAYER)
        self.tensors = {name: call.pop(name, None) for name in names}
        self.attributes = tuple(call.items())
        self._operator: Any = direct.Direct(LAYER, ("X_grad", "scale_grad", "bias_grad"))
        known = run.run_known
        monkeypatch.setattr(direct, "shortcuts", run.shortcuts)
        monkeypatch.setattr(direct, "run_known", lambda request: (self.missed.append(request), known(request))[1])

    def misses(self, changed: Any = None, needs: tuple[bool, ...] = (True, True, True), out: Any = None) -> int:
        """1 where the call was looked up as others are, 0 where it was recognised."""
        self.missed.clear()
        self._operator(needs, tuple({**self.tensors, **(changed or {})}.values()), self.attributes, out)
        return len(self.missed)


@pytest.fixture
def remembered(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> Remembered:
    made = Remembered(monkeypatch)
    assert [made.misses() for _ in range(4)] == [1, 1, 1, 0]  # planned, read, known and remembered, recognised
    return made


def test_an_operator_of_autograd_functions_recognises_calls_like_earlier_ones(
    remembered: Remembered, planner: Planner
) -> None:
    import torch

    reads = planner.reads
    fresh = {name: None if each is None else each.clone() for name, each in remembered.tensors.items()}
    assert not remembered.misses(fresh)
    assert planner.reads == reads
    X, scale = (remembered.tensors[name] for name in ("X", "scale"))
    assert remembered.misses(needs=(True, False, True))
    assert remembered.misses({name: None if each is None else each.double() for name, each in fresh.items()})
    rows = {name: each[:-1] for name, each in fresh.items() if each is not None and len(each) == len(X)}
    assert remembered.misses(rows)
    assert remembered.misses({"residual_grad": torch_like(X)})
    shifted = torch.empty(scale.numel() + 1)[1:].copy_(scale.flatten()).view_as(scale)
    assert remembered.misses({"scale": shifted})  # whose address is no multiple of 16
    with gradkern.policy(deterministic=True):
        assert remembered.misses()
    assert not remembered.misses()
    plan_cache.clear()
    assert remembered.misses()


def test_arrays_to_write_are_recognised_where_they_are_apart(remembered: Remembered) -> None:
    X = remembered.tensors["X"]
    written = torch_like(X)
    assert [remembered.misses(out={"X_grad": written}) for _ in range(4)][-1] == 0
    assert not remembered.misses(out={"X_grad": torch_like(X)})
    assert remembered.misses(out={"X_grad": written, "scale_grad": torch_like(remembered.tensors["scale"])})
    assert not remembered.misses()
    memory = X.new_empty(X.numel() + 4)
    X = memory[:-4].view_as(X).copy_(X)
    with pytest.raises(OutputError, match="overlaps input X"):
        remembered.misses({"X": X}, out={"X_grad": memory[4:].view_as(X)})
