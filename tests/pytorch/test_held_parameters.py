"""torch.compile(model, backend="gradkern"): parameters that are written between the two passes, as eager allows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from gradkern.torch.compile_backend import findings

pytestmark = [pytest.mark.torch, pytest.mark.thorough, pytest.mark.usefixtures("one_thread", "compiled_anew")]


def by_no_grad(parameter: torch.Tensor) -> None:
    with torch.no_grad():
        parameter.add_(1.0)


def by_data(parameter: torch.Tensor) -> None:
    parameter.data.mul_(-3.0)


class InstanceNormSilu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(4, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.norm(x))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, str]] = {
    "linear + gelu": (lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU()), (16, 8), "0.bias", "linear + gelu"),
    "batch norm + relu": (
        lambda: nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()), (3, 4, 5, 5), "0.bias", "batch_norm + relu"
    ),
    "batch norm + silu": (
        lambda: nn.Sequential(nn.BatchNorm2d(4), nn.SiLU()), (3, 4, 5, 5), "0.bias", "batch_norm + silu"
    ),
    "group norm + silu": (
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU()), (3, 4, 5, 5), "0.bias", "group_norm + silu"
    ),
    "instance norm + silu, bias": (InstanceNormSilu, (3, 4, 5, 5), "norm.bias", "instance_norm + silu"),
    "instance norm + silu, weight": (InstanceNormSilu, (3, 4, 5, 5), "norm.weight", "instance_norm + silu"),
}  # fmt: skip


@pytest.mark.parametrize("write", [by_no_grad, by_data])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_forward_pass(name: str, write: Callable[[torch.Tensor], None]) -> None:
    make, shape, written, fusion = MODELS[name]
    torch.manual_seed(0)
    eager = make().double()
    with torch.no_grad():
        for each in eager.parameters():
            each.uniform_(-1.0, 1.0)
    model = copy.deepcopy(eager)
    x = torch.randn(shape, dtype=torch.float64)
    findings.clear()
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True})
    found = gradients(compiled, model, x, written, write)
    assert [each.fusion for each in findings.findings() if not each.reason] == [fusion]
    for one, other in zip(found, gradients(eager, eager, x, written, write), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_no_python_makes_the_copies() -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(3)])
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True})
    _, codes = run_and_get_code(lambda: compiled(torch.randn(3, 4, 5, 5)).sum().backward())
    assert any("batch_norm" in each for each in codes)
    assert not any("held" in each for each in codes)


def gradients(
    run: Any, model: nn.Module, x: torch.Tensor, written: str, write: Callable[[torch.Tensor], None]
) -> list[torch.Tensor]:
    """Of the input and the parameters, where this one was written between the two passes."""
    x = x.clone().requires_grad_()
    y = run(x)
    write(model.get_parameter(written))
    y.sin().sum().backward()
    return [each.grad for each in (x, *model.parameters()) if each.grad is not None]
