"""Overrides under everything that autograd and its relatives do: the same gradients with them as without."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gradkern.torch

pytestmark = pytest.mark.torch

CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, (4,), w, b), lambda: (random(3, 4), random(4), random(4))),
    "batch_norm": (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        lambda: (random(3, 2, 2), random(2), random(2)),
    ),
    "frozen batch_norm": (
        lambda x, w, b: functional.batch_norm(x, MEAN, VARIANCE, w, b),
        lambda: (random(3, 2, 2), random(2), random(2)),
    ),
    "conv2d": (
        lambda x, w, b: functional.conv2d(x, w, b, padding=1),
        lambda: (random(2, 2, 3, 3), random(2, 2, 2, 2), random(2)),
    ),
    "conv_transpose1d": (
        lambda x, w, b: functional.conv_transpose1d(x, w, b, stride=2),
        lambda: (random(2, 2, 3), random(2, 3, 2), random(3)),
    ),
    "gelu": (functional.gelu, lambda: (random(3, 4),)),
    "softmax": (lambda x: functional.softmax(x, 1), lambda: (random(3, 4),)),
    "log softmax": (lambda x: functional.log_softmax(x, 0), lambda: (random(3, 4),)),
    "fast gelu": (lambda x: functional.gelu(x, approximate="tanh"), lambda: (random(3, 4),)),
}
MEAN, VARIANCE = torch.tensor([0.3, -0.2]).double(), torch.tensor([0.7, 2.0]).double()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def taken() -> int:
    return gradkern.torch.report().taken


@pytest.mark.parametrize("name", CASES)
def test_gradients_agree_with_finite_differences_twice(name: str, overrides: Any) -> None:
    function, make = CASES[name]
    arguments = make()
    assert torch.autograd.gradcheck(function, arguments, nondet_tol=1e-12)
    assert taken() > 0
    if name != "conv_transpose1d":  # its own double backward asks convolution_backward for what gradkern declines
        assert torch.autograd.gradgradcheck(function, arguments, nondet_tol=1e-12)


class Model(torch.nn.Module):
    """Each of the operators once."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.depthwise = torch.nn.Conv2d(6, 6, 3, groups=6)
        self.last = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(self.norm(self.first(x)))
        x = self.depthwise(x).mean((2, 3))
        return self.head(functional.gelu(self.last(x), approximate="tanh"))


def gradients(model: torch.nn.Module, run: Callable[..., Any] | None = None) -> list[torch.Tensor | None]:
    model.zero_grad()
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    (model if run is None else run)(x).square().mean().backward()
    return [each.grad for each in model.parameters()]


def close(ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def offloaded(model: Model) -> Callable[..., Any]:
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda each: each.clone(), lambda each: each):
            return model(x)

    return run


WAYS: dict[str, Callable[[Model], Callable[..., Any]]] = {
    "eager": lambda model: model,
    "checkpoint": lambda model: lambda x: checkpoint(model, x, use_reentrant=False),
    "reentrant checkpoint": lambda model: lambda x: checkpoint(model, x.requires_grad_(), use_reentrant=True),
    "saved tensor hooks": offloaded,
    "deepcopy": lambda model: lambda x: model(x) + 0 * copy.deepcopy(model)(x),
    "aot_eager": lambda model: torch.compile(model, backend="aot_eager"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_has_the_same_gradients(way: str) -> None:
    torch.manual_seed(0)
    model = Model()
    gradkern.torch.forget()
    torch.compiler.reset()
    expected = gradients(model)
    run = WAYS[way](model)
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
        gradients(model, run)
        close(gradients(model, run), expected)
        assert taken() >= 6
    before = taken()
    close(gradients(model, run), expected)
    assert taken() == before


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo looks at all of them
def test_a_backward_pass_that_is_compiled_by_itself(overrides: Any) -> None:
    """Autograd's graph as one of Dynamo's, whose calls are aten's."""
    x, weight = torch.randn(3, 8, requires_grad=True), torch.randn(8)
    y = functional.layer_norm(x, (8,), weight).square().sum()
    (expected,) = torch.autograd.grad(y, x, retain_graph=True)
    torch.compiler.reset()
    compiled_autograd: Any = import_module("torch._dynamo.compiled_autograd")  # PyTorch's own, not public
    with compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        y.backward()
    torch.testing.assert_close(x.grad, expected)
    assert taken() == 1


def test_frozen_parameters_get_no_gradient(overrides: Any) -> None:
    model = Model()
    for each in (model.norm, model.last, model.depthwise):
        each.requires_grad_(False)
    gradients(model)
    expected = gradients(model)
    assert [each is None for each in expected] == [not each.requires_grad for each in model.parameters()]
    assert taken() >= 6


def test_autocast(overrides: Any) -> None:
    model = Model()
    expected = [None if each is None else each.clone() for each in gradients(model)]
    with torch.autocast("cpu", torch.bfloat16):
        gradients(model)
        for one, other in zip(gradients(model), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0.1, atol=0.02)


def test_a_scaled_loss(overrides: Any) -> None:
    model = Model()
    expected = [None if each is None else each.clone() for each in gradients(model)]
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.0), torch.amp.GradScaler("cpu", init_scale=1024.0)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 1024  # nothing was infinite
    for each, other in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(each.grad, other, rtol=0.1, atol=0.02)
    assert taken() > 0


def test_function_transforms(overrides: Any) -> None:
    weight, bias = torch.randn(2, 8).unbind()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(functional.layer_norm(x, (8,), weight, bias)).square().sum()

    x = torch.randn(5, 3, 8)
    for _ in range(2):
        one_by_one = torch.stack([torch.func.grad(loss)(each) for each in x])
        torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(x), one_by_one)
        torch.testing.assert_close(torch.func.grad(loss)(x), one_by_one)
    assert taken() > 0


def test_a_graph_may_be_kept_and_gone_through_twice(overrides: Any) -> None:
    x = torch.randn(3, 8, requires_grad=True)
    y = functional.gelu(functional.layer_norm(x, (8,))).sum()
    (once,) = torch.autograd.grad(y, x, retain_graph=True)
    (again,) = torch.autograd.grad(y, x, create_graph=True)
    torch.testing.assert_close(again, once)
    again.square().sum().backward()
    assert x.grad is not None


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "nn.functional.instance_norm",
        "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose2d",
        "nn.functional.conv_transpose3d",
    ],
)
def test_pytorchs_own_samples_of_what_is_made_of_these_operators(name: str, overrides: Any) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    info = next(each for each in op_db if each.name == name and not each.variant_test_name)
    for sample in info.sample_inputs("cpu", torch.float64, requires_grad=True):
        tensors = [each for each in (sample.input, *sample.args, *sample.kwargs.values()) if wants_gradient(each)]

        def both(sample: Any = sample, tensors: Any = tensors) -> Any:
            y = info(sample.input, *sample.args, **sample.kwargs)
            return torch.autograd.grad(y.sin().sum(), tensors, allow_unused=True)

        gradkern.torch.disable()
        expected = both()
        gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now")
        both()
        for one, other in zip(both(), expected, strict=True):
            torch.testing.assert_close(one, other)


def wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
