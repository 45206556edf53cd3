"""torch.compile(model, backend="gradkern") of instance norms: that they compute what eager does, and what is left."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import functional

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph import instance_norm
from gradkern.torch.compile_backend.dynamo_graph.instance_norm import INSTANCE_NORM
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]


def compiled(model: nn.Module, gates: Any = True) -> Any:
    """By the backend's first stage, with autograd's graphs as they are: nothing is compiled."""

    def rewritten(graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of(gates))
        return aot_eager(graph_module, inputs)

    return torch.compile(model, backend=rewritten)


def step(model: nn.Module, run: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    x = x.detach().requires_grad_()
    y = run(x)
    y.float().sin().sum().backward()
    assert x.grad is not None
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return {"y": y.detach(), "dx": x.grad, **gradients}


def found() -> list[tuple[str, str]]:
    return [(each.fusion, each.reason) for each in findings.findings()]


class Net(nn.Module):
    def __init__(self, norm: nn.Module, activation: Any) -> None:
        super().__init__()
        self.norm, self.activation = norm, activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(x * 2)) * 3


def inplace(t: torch.Tensor) -> torch.Tensor:
    return functional.relu(t, inplace=True)


ACTIVATIONS = {
    functional.relu: "relu",
    inplace: "relu",
    functional.silu: "silu",
    functional.gelu: "gelu",
    nn.LeakyReLU(0.2, inplace=True): "leaky_relu",
}


@pytest.mark.parametrize("activation", [nn.Identity(), torch.sigmoid, nn.LeakyReLU(-0.1), *ACTIVATIONS])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 7), (2, 4, 5, 6), (1, 3, 3, 4, 5)])
def test_outputs_and_gradients_are_those_of_eager(shape: tuple[int, ...], affine: bool, activation: Any) -> None:
    torch.manual_seed(0)
    kind = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}[len(shape)]
    model = Net(kind(shape[1], affine=affine), activation).double()
    for each in model.parameters():
        nn.init.normal_(each)
    x = torch.randn(shape, dtype=torch.float64) + 1
    eager = copy.deepcopy(model)
    expected, ours = step(eager, eager, x), step(model, compiled(model), x)
    assert ours.keys() == expected.keys()
    for name, each in ours.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-7, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}")
    name = ACTIVATIONS.get(activation)
    assert found() == [(f"instance_norm + {name}" if name else "instance_norm", "")]


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_type_is_as_near_to_float64_as_eager(dtype: torch.dtype, form: Any) -> None:
    torch.manual_seed(0)
    model = Net(nn.InstanceNorm2d(6, affine=True), functional.relu)  # of float32 parameters, as under autocast
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    x = (torch.randn(3, 6, 9, 11) + 3).to(dtype).to(memory_format=form)
    expected = step(exact, exact, x.double())
    theirs, ours = step(eager, eager, x), step(model, compiled(model), x)
    assert ours["y"].stride() == theirs["y"].stride()
    for name, each in expected.items():
        error, bound = ((tensors[name].double() - each).norm() for tensors in (ours, theirs))
        assert error <= 2 * bound + 1e-6 * each.norm(), name
    assert found() == [("instance_norm + relu", "")]


def test_only_the_gradients_that_are_asked_for_are_computed() -> None:
    torch.manual_seed(0)
    model = Net(nn.InstanceNorm2d(3, affine=True), functional.relu).double()
    for each in model.parameters():
        each.requires_grad_(False)
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    eager = copy.deepcopy(model)
    expected, ours = step(eager, eager, x), step(model, compiled(model), x)
    assert ours.keys() == expected.keys() == {"y", "dx"}
    torch.testing.assert_close(ours["dx"], expected["dx"], rtol=1e-7, atol=1e-7)


class Behind(nn.Module):
    """A norm behind a convolution with a bias; `use` is what else becomes of the convolution's output, if anything."""

    def __init__(self, conv: nn.Module, use: Any) -> None:
        super().__init__()
        self.conv, self.norm, self.use = conv, nn.InstanceNorm2d(3, affine=True), use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        z = functional.leaky_relu(self.norm(y))
        return z if self.use is None else z + self.use(y)


CONVS = [nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(2, 3, 3), nn.Conv2d(2, 3, 3, padding="same"), nn.Conv2d(2, 3, 3, 2, 1)]


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("used", [False, True])
def test_a_bias_before_the_norm_is_added_only_where_something_else_reads_it(conv: nn.Module, used: bool) -> None:
    torch.manual_seed(0)
    model = Behind(copy.deepcopy(conv), torch.sin if used else None).double()
    eager, x = copy.deepcopy(model), torch.randn(2, 2, 5, 6, dtype=torch.float64)
    graphs: list[fx.GraphModule] = []

    def rewritten(graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of(True))
        graphs.append(graph_module)
        return aot_eager(graph_module, inputs)

    expected, ours = step(eager, eager, x), step(model, torch.compile(model, backend=rewritten), x)
    for name, each in ours.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-7, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}")
    assert found() == [("instance_norm + leaky_relu", "")]
    (called,) = [each for each in graphs[0].graph.nodes if each.target in instance_norm.CONVS]
    bias = called.kwargs.get("bias", called.args[2])
    assert (bias is not None) is used
    assert used or torch.equal(ours["conv.bias"], torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("norm", "gates", "reason"),
    [
        (nn.InstanceNorm2d(3, track_running_stats=True), True, "it has running statistics"),
        (nn.InstanceNorm2d(3), None, "off by default: with channels first it was not measured"),
        (nn.InstanceNorm2d(3), {"instance_norm + relu": 241}, "fewer than 241 bytes"),
        (nn.InstanceNorm2d(3), {"instance_norm + relu": False}, "switched off"),
    ],
)
def test_what_is_left_is_reported_with_the_reason(norm: nn.Module, gates: Any, reason: str) -> None:
    model = Net(norm, functional.relu)
    step(model, compiled(model, gates), torch.randn(2, 3, 4, 5))
    assert found() == [("instance_norm + relu", reason)]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
def test_inductors_code_computes_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), Net(nn.InstanceNorm2d(3, affine=True), functional.leaky_relu)).double()
    options: Any = {"gradkern": True}
    run, eager = torch.compile(model, backend="gradkern", options=options), copy.deepcopy(model)
    for seed in (1, 2, 3):  # the third is recognised
        x = torch.randn(2, 2, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        model.zero_grad()
        eager.zero_grad()
        expected, ours = step(eager, eager, x), step(model, run, x)
        for name, each in ours.items():
            torch.testing.assert_close(each, expected[name], rtol=1e-7, atol=1e-7)
    assert found() == [("instance_norm + leaky_relu", "")]


def test_the_operator_keeps_pytorchs_rules() -> None:
    torch.manual_seed(0)
    tensors = torch.randn(2, 3, 4, 5), torch.rand(3), torch.randn(3)
    for activation, alpha in (("none", 0.0), ("relu", 0.0), ("silu", 0.0), ("leaky_relu", 0.1)):
        given = [each.clone().requires_grad_() for each in tensors]
        for shift in (None, torch.randn(3, requires_grad=True)):
            torch.library.opcheck(INSTANCE_NORM, (*given, shift, 1e-5, activation, alpha))
