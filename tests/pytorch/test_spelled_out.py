"""torch.compile(model, backend="gradkern") of models that spell out RMSNorm and GELU, as transformers' do."""

from __future__ import annotations

import copy
import math
import operator
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.models import MODELS
from torch import nn

import gradkern.torch
from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

NORM, GELU = "add + rms_norm", "linear + gelu"
TENSOR = "an epsilon that is a tensor"
Results = dict[str, torch.Tensor]


def rewritten(graph_module: Any, inputs: Any, gates: Any = True) -> Any:
    """The backend's first stage with autograd's graphs as they are: nothing is compiled."""
    from torch._dynamo.backends.debugging import aot_eager

    rewrite(graph_module, gates_of(gates))
    return aot_eager(graph_module, inputs)


def wide(x: torch.Tensor) -> torch.dtype:
    """float32, as transformers has it, but float64 for a reference."""
    return torch.promote_types(x.dtype, torch.float32)


class RMSNorm(nn.Module):
    """LlamaRMSNorm, or one that is not quite it."""

    def __init__(self, width: int, kind: str = "") -> None:
        super().__init__()
        self.weight, self.kind = nn.Parameter(1 + torch.rand(width)), kind
        self.eps = nn.Buffer(torch.tensor(1e-6)) if kind == TENSOR else 1e-6

    def forward(self, x: torch.Tensor) -> Any:
        kind = self.kind
        dtype = x.dtype
        x = x.to(torch.float64 if kind == "another type" else wide(x))
        squares = x.pow(4 if kind == "another power" else 2)
        if kind == "the mean over another axis":
            variance = squares.mean(-2, keepdim=True)
        elif kind == "the mean over two axes":
            variance = squares.mean((-2, -1), keepdim=True)
        else:
            variance = squares.mean(-1, keepdim=True)
        inverse = torch.rsqrt(variance + self.eps)
        if kind == "in-place":
            squares.mul_(2)
        x = x * inverse
        weight = self.weight[:1] if kind == "a weight for all columns" else self.weight
        y = weight * (x if kind == "no type at the end" else x.to(dtype))
        return y + inverse.mean() if kind == "the inverse used elsewhere" else y


class GELUTanh(nn.Module):
    """NewGELUActivation, or one that is not quite it."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 0.0447 if self.kind == "another constant" else 0.044715
        inner = math.sqrt(2.0 / math.pi) * (x + factor * torch.pow(x, 3.0))
        tanh = 1.0 + torch.tanh(inner)
        y = 0.5 * x * tanh
        if self.kind == "the product used elsewhere":
            return y + x
        return y + tanh if self.kind == "the tanh used elsewhere" else y


class Conv1D(nn.Module):
    """transformers' linear layer of the same name"""

    def __init__(self, width: int, columns: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.3 * torch.randn(width, columns)), nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = (*x.size()[:-1], self.bias.shape[0])
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(size)


class Blocks(nn.Module):
    """Two residual blocks, then a norm, of this norm, GELU and linear layer."""

    def __init__(self, norm: Callable[[int], nn.Module], gelu: nn.Module, linear: Any = nn.Linear) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList([norm(8) for _ in range(3)])
        self.up = nn.ModuleList([linear(8, 16) for _ in range(2)])
        self.down = nn.ModuleList([linear(16, 8) for _ in range(2)])
        self.gelu = gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, up, down in zip(self.norms, self.up, self.down, strict=False):
            x = x + down(self.gelu(up(norm(x))))
        return self.norms[2](x)


def example() -> torch.Tensor:
    return torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def step(model: nn.Module, run: Any, x: torch.Tensor) -> Results:
    """The output and all gradients, by name."""
    model.zero_grad()
    leaf = x.detach().requires_grad_(x.is_floating_point())
    torch.manual_seed(1)  # of dropout
    y = run(leaf)
    y = getattr(y, "logits", y)
    y.sin().sum().backward()
    found = {f"d {name}": each.grad for name, each in model.named_parameters()}
    found |= {"y": y.detach()} | ({"dx": leaf.grad} if leaf.grad is not None else {})
    return {name: each.clone() for name, each in found.items() if each is not None}


def check(model: nn.Module, *inputs: torch.Tensor) -> tuple[dict[str, int], dict[str, int]]:
    """Compare with eager in float64, where only a mistake can tell. Returns what was taken and why others were left."""
    model = model.double()
    eager, compiled = copy.deepcopy(model), torch.compile(model, backend=rewritten)
    for x in inputs:
        expected = step(eager, eager, x)
        for name, each in step(model, compiled, x).items():
            torch.testing.assert_close(each, expected[name], rtol=1e-9, atol=1e-11, msg=lambda text, n=name: n + text)
    return reported()


def reported() -> tuple[dict[str, int], dict[str, int]]:
    found = gradkern.torch.report().compiled
    taken = Counter(each.fusion for each in found if not each.reason)
    return dict(taken), dict(Counter(each.reason for each in found if each.reason))


@pytest.mark.parametrize("linear", [nn.Linear, Conv1D])
def test_what_is_spelled_out_is_taken_as_calls_of_pytorchs_functions_are(linear: Any) -> None:
    model = Blocks(RMSNorm, GELUTanh(), linear)
    assert check(model, example(), example()[:2] + 1) == ({NORM: 4, GELU: 4}, {})  # two graphs
    modules = {each.fusion: each.module for each in reversed(findings.findings())}
    assert modules == {NORM: "norms.1", GELU: "up.0"}


def test_a_call_of_gelu_behind_a_conv1d_is_taken() -> None:
    assert check(Blocks(RMSNorm, nn.GELU(), Conv1D), example())[0] == {NORM: 2, GELU: 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("linear", [nn.Linear, Conv1D])
def test_results_are_at_least_as_near_to_float64_as_those_of_the_model_as_it_is(dtype: Any, linear: Any) -> None:
    model = Blocks(RMSNorm, GELUTanh(), linear).to(dtype)
    x = torch.randn(64, 5, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
    exact = step(double := copy.deepcopy(model).double(), double, x.double())
    errors = []
    for run in (model, torch.compile(model, backend=rewritten)):
        found = step(model, run, x)
        assert {each.dtype for each in found.values()} == {dtype}
        errors.append(sum(float((each.double() - exact[n]).norm() / exact[n].norm()) for n, each in found.items()))
    assert reported()[0] == {NORM: 2, GELU: 2}
    # errors of float32 are roundings alone: which of two right ways has the smaller ones in a draw depends on the CPU
    assert errors[1] <= errors[0] * (1.1 if dtype is torch.float32 else 1)


@pytest.mark.parametrize("gates", [None, False])
def test_what_a_gate_leaves_is_bit_for_bit_what_it_was(gates: Any) -> None:
    model = Blocks(RMSNorm, GELUTanh(), Conv1D).bfloat16()
    x = example().bfloat16()
    expected = step(model, model, x)

    def backend(graph_module: Any, inputs: Any) -> Any:
        before = str(graph_module.graph)
        compiled = rewritten(graph_module, inputs, gates)
        assert str(graph_module.graph) == before
        return compiled

    found = step(model, torch.compile(model, backend=backend), x)
    assert all(each.equal(found[name]) for name, each in expected.items())
    taken, left = reported()
    assert (taken, sum(left.values())) == ({}, 4)


NORMS = [
    *(TENSOR, "another power", "the mean over another axis", "the mean over two axes", "in-place"),
    "the inverse used elsewhere",
]


@pytest.mark.parametrize("kind", NORMS)
def test_what_is_not_quite_an_rms_norm_is_left(kind: str) -> None:
    taken, left = check(Blocks(lambda width: RMSNorm(width, kind), nn.SiLU()), example())
    assert not taken
    assert set(left) == ({"its epsilon is no constant"} if kind == TENSOR else set())


class TwoNorms(nn.Module):
    """Norms of one sum, as Falcon has them for attention and MLP."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.linear = first, second, nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.linear(x)
        return x + self.first(x).sin() + self.second(x).cos()


@pytest.mark.parametrize("kinds", [(RMSNorm, RMSNorm), (nn.LayerNorm, nn.LayerNorm), (RMSNorm, nn.LayerNorm)])
def test_of_two_norms_of_one_sum_the_first_is_taken(kinds: Any) -> None:
    first, second = kinds
    taken, left = check(TwoNorms(first(8), second(8)), example())
    assert sum(taken.values()) == 1
    assert left == {"the sum is already computed with another norm of it": 1}


@pytest.mark.parametrize("kind", ["a weight for all columns", "no type at the end"])
def test_norms_without_weight_and_casts_that_change_nothing_are_taken(kind: str) -> None:
    assert check(Blocks(lambda width: RMSNorm(width, kind), nn.SiLU()), example()) == ({NORM: 2}, {})


def test_norms_that_compute_in_another_type_are_left() -> None:
    model = Blocks(lambda width: RMSNorm(width, "another type"), nn.SiLU())
    step(model, torch.compile(model, backend=rewritten), example().float())
    assert reported() == ({}, {})


@pytest.mark.parametrize("kind", ["another constant", "the product used elsewhere", "the tanh used elsewhere"])
def test_what_is_not_quite_a_gelu_is_left(kind: str) -> None:
    assert check(Blocks(nn.Identity, GELUTanh(kind)), example()) == ({}, {})


def test_under_autocast_gelus_and_norms_of_sums_of_two_types_are_taken() -> None:
    model, x = Blocks(RMSNorm, GELUTanh(), Conv1D), example()
    exact = step(double := copy.deepcopy(model).double(), double, x)
    with torch.autocast("cpu", torch.bfloat16):
        found = step(model, torch.compile(model, backend=rewritten), x.float())
    assert reported() == ({GELU: 2, NORM: 2}, {})
    for name, each in found.items():
        assert (each - exact[name]).norm() <= 2e-2 * exact[name].norm(), name


def rewritten_as_on_cuda(graph_module: Any, inputs: Any) -> Any:
    """CUDA's autocast computes pow in float32, so that GELU's result is float32."""
    wide = set[Any]()
    for node in graph_module.graph.nodes:
        behind = node.target in (operator.mul, operator.add, torch.tanh) and wide & {*node.all_input_nodes}
        if node.target is torch.pow or behind:
            wide.add(node)
            node.meta["example_value"] = node.meta["example_value"].float()
    return rewritten(graph_module, inputs)


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (lambda: nn.Linear(16, 8), ({GELU: 1}, {})),
        (nn.Identity, ({}, {"autocast computes it in another type": 1})),
    ],
)
def test_a_gelu_in_float32_is_taken_where_products_alone_read_it(behind: Any, expected: Any) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Conv1D(8, 16), GELUTanh(), behind()), example()
    exact = step(double := copy.deepcopy(model).double(), double, x)
    with torch.autocast("cpu", torch.bfloat16):
        found = step(model, torch.compile(model, backend=rewritten_as_on_cuda), x.float())
    assert reported() == expected
    for name, each in found.items():
        assert (each - exact[name]).norm() <= 2e-2 * exact[name].norm(), name


@pytest.mark.models
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "expected", "embeddings"),
    [("transformers Llama", {NORM: 4}, 1), ("transformers GPT2", {"add + layer_norm": 4, GELU: 2}, 2)],
)
def test_models_of_transformers_have_what_they_spell_out_taken(
    name: str, expected: dict[str, int], embeddings: int
) -> None:
    make, tokens = MODELS[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package's own
        model = make().train()
        exact = step(double := copy.deepcopy(model).double(), double, tokens())
        eager = step(model, model, tokens())
        found = step(model, torch.compile(model, backend=rewritten), tokens())
    assert reported() == (expected, {"it is not on a GPU": embeddings})
    for name, each in exact.items():
        error = float((found[name] - each).norm())
        assert error <= 2 * float((eager[name] - each).norm()) + 1e-6 * float(each.norm()), name
