"""torch.compile(backend="gradkern") and cross entropy, as transformers, torchvision and timm spell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import gradkern.torch
from gradkern.torch.compile_backend import zero_gradients
from gradkern.torch.compile_backend.dynamo_graph import cross_entropy

pytestmark = [pytest.mark.torch, pytest.mark.thorough]
BF16, F32 = torch.bfloat16, torch.float32
V = 33


def causal_lm(logits: Any, labels: Any) -> Any:
    """transformers 5's ForCausalLMLoss."""
    logits = logits.float()
    labels = functional.pad(labels, (0, 1), value=-100)
    shifted = labels[..., 1:].contiguous()
    logits, shifted = logits.view(-1, V), shifted.view(-1).to(logits.device)
    return functional.cross_entropy(logits, shifted, ignore_index=-100, reduction="mean")


def causal_lm_of_a_batch(logits: Any, labels: Any) -> Any:
    """The same with num_items_in_batch."""
    logits = logits.float().view(-1, V)
    return functional.cross_entropy(logits, labels.view(-1), ignore_index=-100, reduction="sum") / 7


def shifted_logits(logits: Any, labels: Any) -> Any:
    """transformers 4's."""
    logits = logits.float()
    before, after = logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
    return torch.nn.CrossEntropyLoss()(before.view(-1, V), after.view(-1))


def masked_lm(logits: Any, labels: Any) -> Any:
    """transformers 5's ForMaskedLMLoss."""
    return functional.cross_entropy(logits.float().view(-1, V), labels.view(-1), ignore_index=-100)


def capped(logits: Any) -> Any:
    """Gemma 2's."""
    return torch.tanh(logits / 5.0) * 5.0


def capped_lm(logits: Any, labels: Any) -> Any:
    return causal_lm(capped(logits), labels)


def classes(logits: Any, labels: Any) -> Any:
    """torchvision's and timm's."""
    return torch.nn.CrossEntropyLoss(label_smoothing=0.1)(logits.flatten(0, 1), labels.flatten())


def pixels(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean()


def twice(logits: Any, labels: Any) -> Any:
    """The float32 logits are used again."""
    wide = logits.float().view(-1, V)
    return functional.cross_entropy(wide, labels.view(-1)) + wide.square().mean()


SPELLED: list[Callable[..., Any]] = [
    causal_lm, causal_lm_of_a_batch, shifted_logits, masked_lm, capped_lm, classes, pixels, twice,
]  # fmt: skip


def soft(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(
        logits.view(-1, V), functional.one_hot(labels.view(-1).clamp(0), V).to(logits.dtype)
    )


def compiled(loss: Callable[..., Any], dtype: Any) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    gradkern.torch.forget()
    hidden, weight = torch.randn(2, 9, 16).to(dtype), torch.randn(V, 16).to(dtype)
    labels = torch.randint(0, V, (2, 9))
    labels[:, 4] = -100

    def step(x: Any, w: Any) -> Any:
        return loss(functional.linear(x, w), labels)

    leaves = [each.requires_grad_() for each in (hidden, weight)]
    wide = [each.detach().float().requires_grad_() for each in leaves]
    theirs = torch.autograd.grad(step(*leaves), leaves)
    exact = torch.autograd.grad(step(*wide), wide)
    fast: Any = torch.compile(step, backend="gradkern", options={"gradkern": True})
    y = fast(*leaves)
    assert y.dtype is step(*leaves).dtype
    for ours, eager, true in zip(torch.autograd.grad(y, leaves), theirs, exact, strict=True):
        distance = (ours.float() - true).norm()
        assert distance <= max(1.2 * (eager.float() - true).norm(), 1e-5 * true.norm())


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("loss", SPELLED)
def test_it_is_taken_with_gradients_no_farther_from_float32_than_eagers(loss: Callable[..., Any], dtype: Any) -> None:
    compiled(loss, dtype)
    assert "compiled cross_entropy: gradkern" in str(gradkern.torch.report())


@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_the_gradient_of_logits_that_are_a_result_too_is_added_where_it_is_not_zero(
    monkeypatch: pytest.MonkeyPatch, softcap: float
) -> None:
    torch._dynamo.reset()
    caps, make_pass = list[float](), cross_entropy._pass

    def watched(*given: Any, **how: Any) -> Any:
        caps.extend(how.values())
        return make_pass(*given, **how)

    monkeypatch.setattr(cross_entropy, "_pass", watched)
    seen, are_known = list[bool](), zero_gradients.are_known
    monkeypatch.setattr(zero_gradients, "are_known", lambda x: [seen.append(are_known(x)), seen[-1]][1])
    torch.manual_seed(0)
    leaves = [torch.randn(2, 9, 16, requires_grad=True), torch.randn(V, 16, requires_grad=True)]
    labels = torch.randint(0, V, (2, 9))

    def step(x: Any, w: Any) -> Any:
        logits = functional.linear(x, w)
        logits = capped(logits) if softcap else logits
        return masked_lm(logits, labels), logits

    fast: Any = torch.compile(step, backend="gradkern", options={"gradkern": True})
    loss_alone, both = (lambda loss, logits: loss), (lambda loss, logits: loss + logits.sin().mean())
    logits_alone = lambda loss, logits: logits.sin().mean()  # noqa: E731
    for used, zero in ((loss_alone, True), (both, False), (loss_alone, True), (logits_alone, False)):
        results = fast(*leaves)
        expected = torch.autograd.grad(used(*step(*leaves)), leaves)
        for _ in range(2):
            found = torch.autograd.grad(used(*results), leaves, retain_graph=True)
            torch.testing.assert_close(found, expected)
            assert seen.pop() is zero
            assert not zero_gradients._known
    assert set(caps) == {softcap}, "the operator does all that is done to the gradient"
    with torch.no_grad():
        torch.testing.assert_close(fast(*leaves), step(*leaves))
    assert not seen
    loss, _ = fast(*leaves)
    monkeypatch.setattr(zero_gradients, "are_known", lambda x: pytest.fail("out of memory"))
    with pytest.raises(pytest.fail.Exception, match="out of memory"):
        loss.backward()
    fast(*leaves)
    assert not zero_gradients._known, "of the pass that failed"


@pytest.mark.usefixtures("graphs_as_they_are")
def test_probabilities_are_left_with_the_reason() -> None:
    compiled(soft, F32)
    assert "it is not of rows of logits and labels" in str(gradkern.torch.report())
