"""What report() says of compiled models, and of gradkern.torch's functions and modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradkern.torch
from gradkern.torch import accelerate, report
from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("compiled_anew", "graphs_as_they_are")]
EVERY: Any = {"gradkern": True}


class Spelled(nn.Module):
    """RMSNorm in words that no pattern has."""

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Norms(nn.Module):
    """Norms of every kind, with additions before or not."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.layer, self.after = nn.GroupNorm(2, 4), nn.LayerNorm(8), nn.LayerNorm(8)
        self.rms, self.spelled, self.batch = nn.RMSNorm(8), Spelled(), nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        y = self.rms(self.layer(self.group(x)).sin())
        return functional.relu(self.batch(self.after(y + self.spelled(y).cos())))


def train(model: Any, *batches: int) -> None:
    for batch in batches:
        model(torch.randn(batch, 4, 3, 8)).sin().sum().backward()


def test_norms_that_no_fusion_has_are_named() -> None:
    train(torch.compile(Norms(), backend="gradkern", options=EVERY), 2)
    found = report()
    taken = {each.fusion for each in found.compiled if not each.reason}
    assert taken == {"add + layer_norm", "batch_norm + relu", "group_norm"}
    assert [each for each in found.compiled if each.reason] == []
    names = {(each.fusion, each.module) for each in found.unmatched}
    assert names == {("layer_norm", "layer"), ("rms_norm", "rms"), ("rms_norm", "spelled")}
    assert "3 norms in compiled models that no fusion has" in str(found)
    assert "compiled rms_norm: no addition comes before it (" in str(found)


class ChannelNorm(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, unbiased=False, keepdim=True) + 1e-6)


class Unbiased(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.var(-1, keepdim=True) + 1e-6)


class Observed(nn.Module):
    def forward(self, x: Any) -> Any:
        inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * inverse + inverse


@pytest.mark.parametrize(
    ("norm", "reason"),
    [
        (ChannelNorm, "it is not over the last axis alone"),
        (Unbiased, "its variance is the unbiased one"),
        (Observed, "others use its mean of squares or standard deviation"),
    ],
)
def test_norms_in_other_words_that_no_operator_computes_have_a_reason(norm: Any, reason: str) -> None:
    def backend(graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of(True))
        return graph_module

    train(torch.compile(nn.Sequential(nn.Linear(8, 8), norm()), backend=backend), 2)
    assert [(each.fusion, each.reason) for each in report().unmatched] == [("norm in other words", reason)]


def test_a_norm_that_a_pass_has_left_is_said_once() -> None:
    train(torch.compile(Norms(), backend="gradkern"), 2)
    assert {(each.fusion, each.reason) for each in report().compiled} == {
        ("batch_norm + relu", "fewer than 1048576 bytes"),
        ("add + layer_norm", "fewer than 1048576 bytes"),
        ("group_norm", "fewer than 1048576 bytes"),
    }
    assert "after" not in {each.module for each in report().unmatched}


def test_models_of_norms_alone_are_no_model_without_calls() -> None:
    model = nn.Sequential(nn.RMSNorm(8), nn.LayerNorm(8))
    train(torch.compile(model, backend="gradkern"), 2)
    assert str(report()).startswith("gradkern.torch: 2 norms in compiled models that no fusion has\n")


def test_a_graph_that_is_given_up_on_the_way_is_not_reported() -> None:
    """With dynamic=True Dynamo first traces momentum and epsilon as symbols, of which no fusion can be made."""
    train(torch.compile(Norms(), backend="gradkern", options=EVERY, dynamic=True), 2, 3, 5)
    assert {each.reason for each in report().compiled} == {""}


def test_a_graph_that_fails_to_compile_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("Inductor fails")

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", fails)
    with pytest.raises(Exception, match="Inductor fails"):
        train(torch.compile(Norms(), backend="gradkern", options=EVERY), 2)
    assert (findings.findings(), findings.unmatched()) == ((), ())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # Dynamo does it
def test_what_accelerated_models_functions_and_modules_compute_is_counted() -> None:
    kinds = gradkern.torch
    model: Any = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), kinds.LayerNorm(8))
    accelerate(model)
    batches = 3
    train(model, *[2] * batches)
    counts = {(each.op, each.device): (each.taken, each.declined) for each in report().modules}
    assert counts == {(name, "cpu"): (batches, 0) for name in ("batch_norm_act", "linear_gelu", "layer_norm")}
    assert str(report()).startswith("gradkern.torch: 9 calls of its functions, modules and accelerated models\n")
    assert len(report()) == report().taken == 0  # which are enable's
    train(model.eval(), 2)
    with torch.no_grad():
        kinds.rms_norm(torch.randn(3, 8), (8,), residual=torch.randn(3, 8))
    counts = {each.op: each.taken for each in report().modules}
    assert counts == {"batch_norm_act": 3, "linear_gelu": 4, "layer_norm": 4, "rms_norm": 1}
    torch.compile(model, backend="aot_eager", fullgraph=True)(torch.randn(2, 4, 3, 8))
    assert {each.op: each.taken for each in report().modules} == counts
    gradkern.torch.forget()
    assert report().modules == ()
    assert str(report()) == "gradkern.torch: no call of an operator that gradkern could answer"
