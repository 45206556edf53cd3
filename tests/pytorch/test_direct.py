"""Operators of autograd functions: called at once in eager, by PyTorch's dispatcher where somebody looks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.seen import Seen
from torch.testing._internal.two_tensor import TwoTensor

import gradkern
from gradkern.torch import direct, layer_norm
from gradkern.torch.direct import Direct

pytestmark = pytest.mark.torch

NAMES = ("X_grad", "scale_grad", "bias_grad")
AXIS = (("axis", 1),)


def inputs() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    grad, x = (torch.randn(4, 6, generator=generator) for _ in range(2))
    return grad, x, torch.ones(6), x.mean(1, keepdim=True), x.std(1, correction=0, keepdim=True).reciprocal()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The outputs that were asked for in calls without PyTorch's dispatcher."""
    found: list[Any] = []
    run = direct.run

    def noted(name: str, *arrays: Any, **named: Any) -> Any:
        found.append(named["outputs"])
        return run(name, *arrays, **named)

    monkeypatch.setattr(direct, "run", noted)
    return found


@pytest.mark.parametrize("needs", [(True, True, True), (True, False, False), (False, True, True)])
def test_what_is_needed_is_computed_at_once(needs: tuple[bool, ...], called: list[Any]) -> None:
    given = inputs()
    results = Direct("LayerNormalizationGrad", NAMES)(needs, given, AXIS)
    wanted: Any = tuple(name for name, need in zip(NAMES, needs, strict=True) if need)
    assert called == [wanted]
    # of the same outputs, as kernels of others may add up in another order
    exact = gradkern.run("LayerNormalizationGrad", *given, axis=1, outputs=wanted)
    for name, result in zip(NAMES, results, strict=True):
        if name in wanted:
            assert torch.equal(result, getattr(exact, name))
        else:
            assert result is None


def test_a_dispatch_mode_sees_the_operator(called: list[Any]) -> None:
    operator = Direct("LayerNormalizationGrad", NAMES)
    with Seen() as seen:
        results = operator((True, False, True), inputs(), AXIS)
    assert seen.operators.count(torch.ops.gradkern.LayerNormalizationGrad.default) == 1
    assert not called
    expected = operator((True, False, True), inputs(), AXIS)
    assert results[1] is None
    assert all(torch.equal(one, other) for one, other in zip(results[::2], expected[::2], strict=True))


def test_tensors_that_stand_for_others_go_to_the_dispatcher() -> None:
    grad, x, *others = inputs()
    twice = [TwoTensor(each, each.clone()) for each in (grad, x, *others)]
    operator = Direct("LayerNormalizationGrad", NAMES)
    found: Any = operator((True, True, True), tuple(twice), AXIS)[0]
    expected = operator((True, True, True), (grad, x, *others), AXIS)[0]
    assert torch.equal(found.a, expected)
    assert torch.equal(found.b, expected)


def test_gradients_of_a_batch_of_gradients_are_those_of_each() -> None:
    x, w = torch.randn(4, 6, requires_grad=True), torch.ones(6, requires_grad=True)
    y = layer_norm(x, (6,), w)
    grads = torch.randn(3, 4, 6)
    together = torch.autograd.grad(y, (x, w), grads, retain_graph=True, is_grads_batched=True)
    for place, grad in enumerate(grads):
        alone = torch.autograd.grad(y, (x, w), grad, retain_graph=True)
        torch.testing.assert_close([each[place] for each in together], list(alone))
