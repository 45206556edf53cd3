"""torch.compile(backend="gradkern") and heads whose number of classes is no multiple of 8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.models import torchvision
from torch.nn import functional

import gradkern.torch
from gradkern.torch.compile_backend import findings, zero_gradients
from gradkern.torch.compile_backend.dynamo_graph import fusion

pytestmark = [pytest.mark.torch, pytest.mark.thorough]
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
V, IGNORED = 37, -100
CASES = {  # type of the parameters, whether autocast narrows them, and whether the head has a bias
    "autocast": (F32, True, True),
    "autocast, no bias": (F32, True, False),
    "bfloat16": (BF16, False, True),
    "bfloat16, no bias": (BF16, False, False),
    "float16": (F16, False, True),
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    torch._dynamo.reset()
    gradkern.torch.forget()
    torch.manual_seed(0)


def reasons() -> list[str]:
    return [each.reason for each in findings.findings() if each.fusion == "padded logits"]


def as_it_is(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def causal_lm(logits: Any, labels: Any) -> Any:
    """transformers 5's, with num_items_in_batch."""
    logits = logits.float()
    shifted = functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous()
    logits = logits.view(-1, logits.shape[-1])
    return functional.cross_entropy(logits, shifted.view(-1), ignore_index=IGNORED, reduction="sum") / 7


def shifted_logits(logits: Any, labels: Any) -> Any:
    """transformers 4's."""
    before, after = logits.float()[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
    return functional.cross_entropy(before.view(-1, before.shape[-1]), after.view(-1))


def of_each(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").square().sum()


def last_token(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits[:, -1], labels[:, -1])


def twice(logits: Any, labels: Any) -> Any:
    """Another loss of the same logits, and a view that rows at a distance do not have."""
    return as_it_is(logits, labels) + causal_lm(logits, labels.flip(1)) + logits.view(-1).float().square().mean()


LOSSES: list[tuple[Callable[..., Any], str]] = [
    *((as_it_is, each) for each in ("autocast", "bfloat16, no bias", "float16")),
    *((causal_lm, each) for each in ("autocast, no bias", "bfloat16")),
    *((shifted_logits, "bfloat16"), (of_each, "autocast"), (last_token, "float16"), (twice, "autocast")),
]


class Step:
    """A head and a loss, its tensors, and float64's gradients."""

    def __init__(self, loss: Callable[..., Any], case: str, classes: int = V, device: str = "cpu") -> None:
        dtype, self.autocast, biased = CASES[case]
        self.loss, self.labels = loss, torch.randint(0, classes, (2, 9), device=device)
        self.labels[:, 4] = IGNORED
        shapes = [(2, 9, 16), (classes, 16), (classes,)][: 2 + biased]
        self.leaves = [torch.randn(each, device=device).to(dtype).requires_grad_() for each in shapes]

    def __call__(self, *leaves: Any) -> tuple[Any, Any]:
        logits = functional.linear(*leaves)
        return self.loss(logits, self.labels), logits

    def run(self, step: Any) -> tuple[Any, Any]:
        with torch.autocast(self.labels.device.type, BF16, enabled=self.autocast):
            return step(*self.leaves)

    def check(self, results: tuple[Any, Any], used: Callable[..., Any] = lambda loss, logits: loss) -> None:
        """Loss, logits and gradients are as near to float64's as eager's."""
        wide = [each.detach().double().requires_grad_() for each in self.leaves]
        true, eager = self(*wide), self.run(self)
        truths = [*true, *torch.autograd.grad(used(*true), wide)]
        theirs = [*eager, *torch.autograd.grad(used(*eager), self.leaves)]
        found = [*results, *torch.autograd.grad(used(*results), self.leaves, retain_graph=True)]
        for one, other, exact in zip(found, theirs, truths, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            distance, bound = ((each.double() - exact).norm() for each in (one, other))
            assert distance <= 1.2 * bound + torch.finfo(one.dtype).eps / 2 * exact.norm()


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.parametrize(("loss", "case"), LOSSES)
def test_losses_logits_and_gradients_are_as_near_to_float64_as_eagers(loss: Callable[..., Any], case: str) -> None:
    step = Step(loss, case)
    fast = torch.compile(step.__call__, backend="gradkern", options={"gradkern": True})
    step.check(step.run(fast))
    assert set(reasons()) == {""}
    assert step.run(fast)[1].stride(-2) == 40


def test_many_classes_are_padded_to_lines_of_memory() -> None:
    step = Step(causal_lm, "autocast", 1031)
    results = step.run(torch.compile(step.__call__, backend="gradkern", options={"gradkern": True}))
    step.check(results)
    assert results[1].stride(-2) == 1088


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [V, 1031, 30522])
@pytest.mark.parametrize("case", CASES)
def test_losses_logits_and_gradients_on_a_gpu(case: str, classes: int) -> None:
    step = Step(causal_lm, case, classes, "cuda")
    results = step.run(torch.compile(step.__call__, backend="gradkern", options={"gradkern": True}))
    step.check(results)
    step.check(results, lambda loss, logits: loss + logits.double().sin().mean())
    assert results[1].stride(-2) % 8 == 0
    assert reasons() == [""]


def test_the_loss_adds_no_zeros_and_adds_what_another_loss_has_of_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, are_known = list[bool](), zero_gradients.are_known
    monkeypatch.setattr(zero_gradients, "are_known", lambda x: [seen.append(are_known(x)), seen[-1]][1])
    step = Step(causal_lm, "autocast")
    fast: Any = torch.compile(step.__call__, backend="gradkern", options={"gradkern": True})
    uses: list[tuple[Callable[..., Any], bool]] = [
        (lambda loss, logits: loss, True),
        (lambda loss, logits: loss + logits.double().sin().mean(), False),
        (lambda loss, logits: loss + logits[:, 1:4, ::3].double().sin().mean(), False),
        (lambda loss, logits: logits.double().sin().mean(), False),
    ]
    for used, zero in uses:
        step.check(step.run(fast), used)
        assert seen.pop() is zero
        assert not seen
        assert not zero_gradients._known


def test_results_that_are_other_views_of_the_logits_have_their_gradients() -> None:
    step = Step(causal_lm, "bfloat16")

    def views(*leaves: Any) -> Any:
        loss, logits = step(*leaves)
        return loss + logits[:, 2].double().sum(), torch.stack([logits.view(-1)[:5], logits.view(-1, V)[3, :5]])

    fast = torch.compile(views, backend="gradkern", options={"gradkern": True})
    for used in (lambda y, z: y, lambda y, z: y + z.double().sin().sum()):
        ours, theirs = (torch.autograd.grad(used(*each(*step.leaves)), step.leaves) for each in (fast, views))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def smoothed(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits.view(-1, V), labels.view(-1), label_smoothing=0.1)


def weighted(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits.view(-1, V), labels.view(-1), torch.ones(V, dtype=logits.dtype))


def masked(logits: Any, labels: Any) -> Any:
    logits[..., 3] = -9
    return as_it_is(logits, labels)


def some_classes(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits[..., :29].reshape(-1, 29), labels.clamp(max=28).view(-1))


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (smoothed, "its loss has weights of classes or smoothing"),
        (weighted, "its loss has weights of classes or smoothing"),
        (masked, "setitem sees where its logits are in memory"),
        (some_classes, "its logits are sliced or arranged by classes"),
    ],
)
def test_other_heads_stay_as_they_are_with_the_reason(loss: Callable[..., Any], reason: str) -> None:
    step = Step(loss, "bfloat16")
    step.check(step.run(torch.compile(step.__call__, backend="gradkern", options={"gradkern": True})))
    assert reasons() == [reason]


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.parametrize("on_gpu", [False, True])
def test_where_nothing_is_gained_heads_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, on_gpu: bool) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", on_gpu)
    step = Step(as_it_is, "bfloat16")
    sizes: Any = {"cross_entropy": True} if on_gpu else True
    fast = torch.compile(step.__call__, backend="gradkern", options={"gradkern": sizes})
    assert step.run(fast)[1].is_contiguous()
    assert reasons() == (["fewer than 4194304 bytes"] if on_gpu else ["it is not on a GPU"])
    for case, classes in (("bfloat16", 40), ("autocast", 40)):
        gradkern.torch.forget()
        step = Step(as_it_is, case, classes)
        step.run(torch.compile(step.__call__, backend="gradkern", options={"gradkern": True}))
        assert not reasons()


_FEW = {"vocab_size": V, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BERT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
_BERT |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_GPT = {"n_embd": 32, "n_layer": 1, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_WHISPER = {f"{each}_layers": 1 for each in ("encoder", "decoder")} | {"d_model": 32, "decoder_start_token_id": 1}
_WHISPER |= {f"{each}_{of}": 2 for each in ("encoder", "decoder") for of in ("attention_heads", "ffn_dim")}
_WHISPER |= {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16, "dropout": 0.0}
MODELS = {"BertForMaskedLM": _BERT, "GPT2LMHeadModel": _GPT, "WhisperForConditionalGeneration": _WHISPER}


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers_have_eagers_gradients_and_parameters(name: str) -> None:
    torchvision()  # before transformers: it defines what a wheel for CUDA lacks
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**_FEW, **MODELS[name])).train()
    model.loss_type = model.loss_type or "ForCausalLM"  # GPT-2: without it a warning splits the graph before the loss
    words = torch.randint(3, V, (2, 9))
    labels = words.masked_fill(words % 5 == 0, IGNORED)
    given = {"input_features": torch.randn(2, 8, 32)} if "Whisper" in name else {"input_ids": words}
    head = model.get_output_embeddings().weight
    names = {each: value.data_ptr() for each, value in model.state_dict().items()}

    def steps(model: Any, run: Any, dtype: Any = BF16) -> list[torch.Tensor]:
        model.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype is BF16):
            found = run(**given, labels=labels, use_cache=False)
        found.loss.backward()
        return [found.logits.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]

    exact, eager = steps(model, model, F32), steps(model, model)
    found = steps(model, torch.compile(model, backend="gradkern", options={"gradkern": True}))
    assert reasons() == [""]
    assert names == {each: value.data_ptr() for each, value in model.state_dict().items()}
    assert head.shape == head.grad.shape == (V, 32)
    for one, other, true in zip(found, eager, exact, strict=True):
        assert one.shape == true.shape
        assert (one - true).norm() <= 1.3 * (other - true).norm() + 2**-9 * true.norm()
