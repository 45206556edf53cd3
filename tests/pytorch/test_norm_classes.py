"""torch.compile(model, backend="gradkern") of every class of norm that transformers, timm and diffusers have."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from helpers.models import torchvision
from helpers.norm_classes import COLUMNS, made, norm_classes, operands
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

import gradkern.torch
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.models,
    pytest.mark.thorough,
    pytest.mark.usefixtures("one_thread", "compiled_anew"),
]

PACKAGES = ("transformers", "timm", "diffusers")
SHAPES = ((2, 5, COLUMNS), (2, COLUMNS, 4, 4))


def rewritten(graph_module: Any, inputs: Any) -> Any:
    """The backend's first stage with autograd's graphs as they are: nothing is compiled."""
    rewrite(graph_module, gates_of(True))
    return aot_eager(graph_module, inputs)


class Block(nn.Module):
    """A residual addition, and a norm of the sum."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor, residual: torch.Tensor, *more: torch.Tensor) -> Any:
        total = x + residual
        return self.norm(total, *more), total


def step(block: nn.Module, run: Any, shape: tuple[int, ...], count: int) -> list[Any]:
    """Results and gradients; torch.float32, as most classes cast to that type."""
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(shape, generator=generator).requires_grad_() for _ in range(count)]
    block.zero_grad()
    y, total = run(*given)
    (y.sin() + total.cos()).sum().backward()
    gradients = [each.grad for each in (*given, *block.parameters())]
    return [y.detach(), total.detach(), *[None if each is None else each.clone() for each in gradients]]


def outcome(module: str, name: str) -> str:
    """What became of the class: "taken", or why not."""
    torch.manual_seed(0)
    try:
        norm = made(module, name)
    except Exception:  # of sizes that do not fit together
        norm = None
    if norm is None:
        return "its class needs other arguments"
    for each in norm.parameters():
        if each.dim() < 2:  # products with matrices like that are so large that float32 has no digits of their sines
            nn.init.normal_(each, 0.8, 0.3)
    block, count = Block(norm), operands(norm) + 1
    for shape in SHAPES:
        try:
            expected = step(block, block, shape, count)
        except Exception:
            continue
        found = step(block, torch.compile(block, backend=rewritten), shape, count)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        report = gradkern.torch.report()
        left = [each.reason for each in (*report.compiled, *report.unmatched) if each.reason]
        taken = any(not each.reason for each in report.compiled)
        return "taken" if taken else ", ".join(sorted(set(left))) or "no norm is found"
    return "its data have another shape"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_class_of_norm_computes_what_eager_does_and_what_is_left_has_a_reason(package: str) -> None:
    torchvision()
    outcomes: Counter[str] = Counter()
    named: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages' own
        for module, name, count in norm_classes(package):
            try:
                named[name] = outcome(module, name)
            except Exception as error:
                error.add_note(f"{module}.{name}")
                raise
            outcomes[named[name]] += count
            torch.compiler.reset()
            gradkern.torch.forget()
    print(package, dict(outcomes.most_common()), named)
    left = {name: reason for name, reason in named.items() if reason != "taken"}
    assert {name for name, reason in left.items() if reason == "no norm is found"} <= NO_NORMS
    assert outcomes["taken"] >= LEAST[package], left
    assert not left.keys() & TAKEN, left


LEAST = {"transformers": 200, "timm": 5, "diffusers": 8}
NO_NORMS = {
    *("NoNorm", "GlobalResponseNorm", "LpNorm", "Kandinsky6VAERMSNorm", "Kandinsky6SRLatentUpscalerRMSNorm"),
}
"""They compute something else, or by F.normalize."""
TAKEN = {
    *("GemmaRMSNorm", "AfmoeRMSNorm", "Aimv2RMSNorm", "CohereLayerNorm", "DebertaLayerNorm", "OlmoHybridRMSNormGated"),
    *("LlamaRMSNorm", "T5LayerNorm", "Olmo2RMSNorm", "MambaRMSNorm", "NemotronLayerNorm1P", "OlmoLayerNorm"),
    *("LayerNorm", "LayerNormFp32", "RmsNorm", "RmsNormFp32", "RMSNorm", "FP32LayerNorm", "Krea2RMSNorm"),
}
