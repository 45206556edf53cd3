"""Compiled models save no more activations for the backward pass than torch.compile's do: what Inductor's kernels read
there of an operator's output is recomputed from its input.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.call_sites import CallSite

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

CHANNELS = 32


class Response(nn.Module):
    """ConvNeXt V2's block: a response normalization between GELU and the second linear layer."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.inner, self.gelu = nn.Linear(8, CHANNELS), nn.GELU(approximate)
        self.outer, self.scale = nn.Linear(CHANNELS, 8), nn.Parameter(torch.ones(CHANNELS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.gelu(self.inner(x.movedim(1, -1)))
        norm = x.norm(p=2, dim=(1, 2), keepdim=True)
        x = x + self.scale * (x * (norm / (norm.mean(-1, keepdim=True) + 1e-6)))
        return self.outer(x)


class Gate(nn.Module):
    """A batch norm and its activation in front of a squeeze and excitation."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(8, CHANNELS, 1, bias=False), nn.BatchNorm2d(CHANNELS)
        self.activation, self.gate, self.last = activation, nn.Linear(CHANNELS, CHANNELS), nn.Conv2d(CHANNELS, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.norm(self.first(x)))
        return self.last(x * self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None])


class Plain(nn.Module):
    """Nothing between GELU and the second linear layer, whose gradient reads GELU's output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, CHANNELS), nn.Linear(CHANNELS, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(nn.functional.gelu(self.inner(x.movedim(1, -1))))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GELU and a response normalization": Response,
    "tanh GELU and a response normalization": lambda: Response("tanh"),
    **{f"batch norm, {type(each).__name__} and a gate": lambda each=each: Gate(each)
       for each in (nn.ReLU(), nn.LeakyReLU(0.1), nn.SiLU(), nn.Hardswish(), nn.ReLU6())},
}  # fmt: skip


def images(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.linspace(-4, 4, 4 * 8 * 12 * 12, dtype=torch.float64).sin()
    return (3 * values).view(4, 8, 12, 12).to(dtype).requires_grad_()


def trained(model: nn.Module, run: Any, between: Callable[[nn.Module], None], dtype: torch.dtype) -> dict[str, Any]:
    """The gradients of a step, and how many tensors as large as the activations are saved for the backward pass."""
    model.zero_grad()
    x, saved = images(dtype), dict[int, int]()

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes() // tensor.itemsize
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = run(x)
    with torch.no_grad():
        between(model)
    (y * y.detach().cos()).sum().backward()
    large = sum(elements >= 4 * CHANNELS * 12 * 12 for elements in saved.values())
    return {"saved": large, "x": x.grad, **{name: each.grad for name, each in model.named_parameters()}}


def unchanged(model: nn.Module) -> None:
    pass


def without_biases(model: nn.Module) -> None:
    """What eager does not read again may change between the passes."""
    for name in ("norm", "inner"):
        if hasattr(model, name):
            getattr(model, name).bias.zero_()


@pytest.mark.parametrize("between", [unchanged, without_biases])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_as_much_is_saved_as_by_torch_compile(name: str, dtype: torch.dtype, between: Any) -> None:
    torch.manual_seed(0)
    eager = MODELS[name]().to(dtype)
    ours, inductors, wide = copy.deepcopy(eager), copy.deepcopy(eager), copy.deepcopy(eager).double()
    run = torch.compile(ours, backend="gradkern", options={"gradkern": True})
    found = trained(ours, run, between, dtype)
    assert {each.fusion.partition(" + ")[0] for each in findings.findings() if not each.reason} & {
        "batch_norm",
        "linear",
    }
    torch.compiler.reset()
    plain = trained(eager, eager, between, dtype)
    least = trained(inductors, torch.compile(inductors), between, dtype)["saved"]
    assert found.pop("saved") <= least < plain.pop("saved")
    exact = trained(wide, wide, between, torch.float64)
    for key, each in found.items():
        ours_error, eagers = ((one.double() - exact[key]).norm() / exact[key].norm() for one in (each, plain[key]))
        assert ours_error < max(1.5 * eagers, 1e-4 if dtype == torch.float32 else 0.02), key


@pytest.mark.parametrize("name", list(MODELS)[::2])
def test_sizes_may_be_open(name: str) -> None:
    torch.manual_seed(0)
    eager = MODELS[name]()
    ours = copy.deepcopy(eager)
    run = torch.compile(ours, backend="gradkern", options={"gradkern": True}, dynamic=True)
    for size in (12, 9):
        x = torch.linspace(-4, 4, 3 * 8 * size * size).sin().view(3, 8, size, size)
        for model, of in ((ours, run), (eager, eager)):
            model.zero_grad()
            of(x).square().sum().backward()
        for (key, each), other in zip(ours.named_parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(each.grad, other.grad, rtol=1e-3, atol=1e-2, msg=key)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of the operators in compiled code."""
    found: Counter[str] = Counter()
    call = CallSite.__call__

    def counted(site: CallSite, *tensors: torch.Tensor, **named: Any) -> Any:
        found[str(site)] += 1
        return call(site, *tensors, **named)

    monkeypatch.setattr(CallSite, "__call__", counted)
    return found


@pytest.mark.parametrize(("model", "times"), [(Response, 2), (Plain, 1)])
def test_a_gelu_that_is_recomputed_is_written_once_more(
    model: Callable[[], nn.Module], times: int, calls: Counter[str]
) -> None:
    torch.manual_seed(0)
    ours = model()
    trained(ours, torch.compile(ours, backend="gradkern", options={"gradkern": True}), unchanged, torch.float32)
    assert calls == {"gradkern.bias_gelu_forward.default": times, "gradkern.bias_gelu_backward.default": 1}


@pytest.mark.parametrize(("policy", "times"), [(CheckpointPolicy.MUST_SAVE, 1), (CheckpointPolicy.MUST_RECOMPUTE, 2)])
def test_a_checkpoint_says_itself_what_is_recomputed(policy: Any, times: int, calls: Counter[str]) -> None:
    torch.manual_seed(0)
    eager = Response()
    ours = copy.deepcopy(eager)

    def run(x: torch.Tensor) -> Any:
        contexts = partial(create_selective_checkpoint_contexts, lambda *_, **__: policy)
        return checkpoint(ours, x, use_reentrant=False, context_fn=contexts)

    compiled = torch.compile(run, backend="gradkern", options={"gradkern": True})
    found, expected = (trained(*each, unchanged, torch.float32) for each in ((ours, compiled), (eager, eager)))
    assert calls["gradkern.bias_gelu_forward.default"] == times
    for key in expected.keys() - {"saved"}:
        torch.testing.assert_close(found[key], expected[key], rtol=1e-4, atol=1e-4, msg=key)


def test_what_a_product_reads_again_is_saved() -> None:
    torch.manual_seed(0)
    eager = Plain()
    ours = copy.deepcopy(eager)
    run = torch.compile(ours, backend="gradkern", options={"gradkern": True})
    found, expected = (trained(*each, unchanged, torch.float32) for each in ((ours, run), (eager, eager)))
    assert found.pop("saved") == expected.pop("saved") == 2
    for key, each in expected.items():
        torch.testing.assert_close(found[key], each, rtol=1e-4, atol=1e-5)
