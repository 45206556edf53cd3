"""dW of few channels in graphs that Inductor would get: which are gradkern's, and what they compute."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._inductor.decomposition import select_decomp_table

from gradkern.torch.compile_backend.dynamo_graph import fusion
from gradkern.torch.compile_backend.dynamo_graph.depthwise_conv import CONV_WEIGHT_GRADIENT
from gradkern.torch.compile_backend.gates import gates_of
from gradkern.torch.compile_backend.inductor_graphs import each_graph

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]


@pytest.fixture(autouse=True)
def _on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)


class Backend:
    """Autograd's graphs with this pass, which run as they are. taken: how many gradients are gradkern's."""

    def __init__(self, gates: Any = True) -> None:
        self._gates, self.taken = gates_of(gates), 0

    def __call__(self, graph_module: Any, inputs: Any) -> Any:
        def kept(traced: Any, _: Any) -> Any:
            each_graph.take_few_channels(traced.graph, self._gates)
            traced.graph.lint()
            traced.recompile()
            self.taken += len(traced.graph.find_nodes(op="call_function", target=CONV_WEIGHT_GRADIENT))
            return make_boxed_func(traced.forward)

        return aot_autograd(fw_compiler=kept, decompositions=select_decomp_table())(graph_module, inputs)


def check(model: nn.Module, x: torch.Tensor, backend: Backend) -> int:
    """Compare the gradients with float64's. Returns how many are gradkern's."""
    exact = copy.deepcopy(model).double()
    exact(x.double()).sin().mean().backward()
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(model, backend=backend)(x).float().sin().mean().backward()
    for (name, found), wanted in zip(model.named_parameters(), exact.parameters(), strict=True):
        assert found.grad is not None
        assert wanted.grad is not None
        if found.shape[-1] > 1:  # else it lies in both orders
            assert found.grad.stride() == found.stride()
        assert (found.grad - wanted.grad).norm() <= 3e-2 * wanted.grad.norm(), name
    return backend.taken


def first(channels: int = 3, filters: int = 8, bias: bool = False, **more: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(channels, filters, 3, padding=1, bias=bias, **more), nn.Conv2d(filters, 8, 1))


def images(channels: int = 3, last: bool = True) -> torch.Tensor:
    x = torch.randn(4, channels, 9, 10, generator=torch.Generator().manual_seed(channels))
    return x.contiguous(memory_format=torch.channels_last) if last else x


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("more", [{}, {"stride": 2}, {"stride": (1, 2)}])
def test_the_first_convolution_of_a_network(more: dict[str, Any], last: bool) -> None:
    model: Any = first(**more)
    assert check(model.to(memory_format=torch.channels_last) if last else model, images(last=last), Backend()) == 1


@pytest.mark.parametrize(
    ("model", "channels", "gates"),
    [
        (first(8), 8, True),
        (first(3, 12), 3, True),
        (first(bias=True), 3, True),
        (first(dilation=2), 3, True),
        (first(4, 8, groups=2), 4, True),
        (nn.Sequential(nn.Conv2d(3, 3, 1), first()), 3, True),
        (first(), 3, None),
        (first(), 3, {"dW of few channels": False}),
    ],
    ids=["channels", "filters", "bias", "dilation", "groups", "not the first", "small", "switched off"],
)
def test_others_are_left_to_pytorch(model: nn.Module, channels: int, gates: Any) -> None:
    assert check(model, images(channels), Backend(gates)) == 0


def test_other_types_are_left_to_pytorch() -> None:
    model, backend = first(), Backend()
    torch.compile(model, backend=backend)(images()).sum().backward()
    assert backend.taken == 0


@pytest.mark.gpu
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_the_whole_backend_on_a_gpu(last: bool, bias: bool) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=bias), nn.Conv2d(64, 32, 3)).cuda()
    x = torch.randn(16, 3, 96, 96, device="cuda")
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    exact(x.double()).sin().mean().backward()
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True})
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)
    with torch.autocast("cuda", torch.bfloat16):
        y = compiled(x)
    with profile:
        y.float().sin().mean().backward()
        torch.cuda.synchronize()
    names = [each.name for each in profile.events() or ()]
    assert any("gradkern_conv_few_channels_dW" in name for name in names), names
    found, wanted = model[0].weight.grad, exact[0].weight.grad
    assert (found - wanted).norm() <= 1e-2 * wanted.norm()  # PyTorch's own, in eager mode on a CPU, is 0.004 away
