"""torch.compile(model, backend="gradkern") of group norms: what becomes one operator, in which order, what is left."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import functional

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph.group_norm import GROUP_NORM
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]


class Norm(nn.Module):
    """A norm, a scale and a shift of each sample and channel if there is an embedding, and an activation."""

    def __init__(self, groups: int = 2, channels: int = 8, activation: Any = functional.silu, **options: Any) -> None:
        super().__init__()
        self.norm, self.activation = nn.GroupNorm(groups, channels, **options), activation
        self.embedding = nn.Linear(4, 2 * channels)

    def forward(self, x: torch.Tensor, embedding: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norm(x * 2)
        if embedding is not None:
            scale, shift = self.embedding(embedding)[(..., *(None,) * (x.dim() - 2))].chunk(2, 1)
            y = y * (1 + scale) + shift
        return self.activation(y) * 3


class Block(nn.Module):
    """As diffusers' ResnetBlock2D."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.GroupNorm(2, channels, eps=1e-5) for _ in range(2))
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.dropout, self.act = nn.Dropout(0.0), nn.SiLU()
        self.time = nn.Linear(4, channels)

    def forward(self, x: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        h = self.conv1(self.act(self.norm1(x)))
        h = self.norm2(h + self.time(self.act(embedding))[:, :, None, None])
        return x + self.conv2(self.dropout(self.act(h)))


graphs: list[fx.GraphModule] = []


def compiled(model: nn.Module, gates: Any = True) -> Any:
    def rewritten(graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of(gates))
        graphs[:] = [graph_module]
        return aot_eager(graph_module, inputs)

    return torch.compile(model, backend=rewritten)


def step(model: nn.Module, run: Any, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    given = [each.detach().requires_grad_() for each in inputs]
    y = run(*given)
    y.float().sin().sum().backward()
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return {"y": y.detach(), **{f"dx{n}": each.grad for n, each in enumerate(given)}, **gradients}  # type: ignore[dict-item]


def found() -> list[tuple[str, str]]:
    return [(each.fusion, each.reason) for each in findings.findings() if "group_norm" in each.fusion]


def calls() -> int:
    return len(graphs[0].graph.find_nodes(op="call_function", target=GROUP_NORM))


def check(model: nn.Module, *inputs: torch.Tensor, fusion: str, reason: str = "") -> None:
    twin = copy.deepcopy(model)
    findings.clear()
    expected, got = step(model, model, *inputs), step(twin, compiled(twin), *inputs)
    assert (fusion, reason) in found()
    assert expected.keys() == got.keys()
    for name, each in expected.items():
        torch.testing.assert_close(got[name], each, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


ACTIVATIONS = {
    "silu": functional.silu,
    "relu": functional.relu,
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("embedded", [False, True])
def test_a_norm_with_what_is_behind_it_is_one_operator(activation: str, embedded: bool) -> None:
    inputs = torch.randn(3, 8, 5, 6), *((torch.randn(3, 4),) if embedded else ())
    fusion = f"group_norm + {'scale and shift + ' * embedded}{activation}"
    check(Norm(activation=ACTIVATIONS[activation]), *inputs, fusion=fusion)
    assert calls() == 1


@pytest.mark.parametrize("shape", [(3, 8), (3, 8, 5), (2, 8, 3, 4, 5)])
def test_every_rank_without_parameters_and_without_an_activation(shape: tuple[int, ...]) -> None:
    check(Norm(activation=lambda t: t), torch.randn(shape), fusion="group_norm")
    check(Norm(affine=False), torch.randn(shape), fusion="group_norm + silu")


def test_the_fast_gelu_stays_behind() -> None:
    check(Norm(activation=nn.GELU("tanh")), torch.randn(3, 8, 5), fusion="group_norm")


def test_a_residual_block_keeps_channels_last() -> None:
    model = cast(Any, Block()).to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    check(model, x, torch.randn(2, 4), fusion="group_norm + silu")
    assert calls() == 2
    assert not graphs[0].graph.find_nodes(op="call_method", target="contiguous")


def test_under_autocast_what_convolutions_take_is_fused() -> None:
    model = cast(Any, Block()).to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    twin = copy.deepcopy(model)

    def run(one: Any) -> Any:
        def under(x: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return one(x, embedding)

        return under

    embedding = torch.randn(2, 4)
    expected, got = step(model, run(model), x, embedding), step(twin, run(compiled(twin)), x, embedding)
    for name, each in expected.items():
        torch.testing.assert_close(got[name], each, rtol=5e-2, atol=5e-2)
    assert calls() >= 1


def test_a_result_that_others_use_has_eagers_strides() -> None:
    model = Norm()
    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    check(model, x, fusion="group_norm + silu")
    y, expected = compiled(copy.deepcopy(model))(x), model(x)
    assert y.stride() == expected.stride()


def test_what_is_small_or_switched_off_is_left() -> None:
    model, x = Norm(), torch.randn(2, 8, 6)
    findings.clear()
    step(model, compiled(model, None), x)
    assert found()[0][1].startswith("fewer than")
    torch._dynamo.reset()
    findings.clear()
    step(model, compiled(model, {"group_norm + silu": False, "group_norm": 0}), x)
    assert set(found()) == {("group_norm + silu", "switched off"), ("group_norm", "")}
