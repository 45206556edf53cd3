"""torch.device(...) and torch.set_default_device say where the user makes tensors, not where gradkern does."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from helpers.checkout import ROOT
from torch import nn
from torch.nn import functional
from torch.utils._device import _device_constructors

import gradkern
import gradkern.torch
from gradkern import plan_cache
from gradkern.arrays import torch_guards
from gradkern.torch import constants
from gradkern.torch.overrides import runners

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

FACTORIES = {each.__name__ for each in _device_constructors()}


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


WAYS: dict[str, Callable[[], Any]] = {
    "torch.device": lambda: torch.device("meta"),
    "set_default_device": default_device,
}


@pytest.fixture(params=WAYS)
def elsewhere(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Another default device, for a block. Nothing is known yet that was made before."""
    plan_cache.clear()
    constants._known.clear()
    runners._constant.cache_clear()
    torch_guards.tensor_guards.cache_clear()
    return WAYS[request.param]


def assert_alike(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == "cpu"
        torch.testing.assert_close(one, other.to(one.dtype), rtol=1e-4, atol=1e-5)


def gradients(step: Callable[..., torch.Tensor], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The output of a step and its gradients."""
    given = [each.detach().clone().requires_grad_() for each in tensors]
    y = step(*given)
    (y.float() * torch.arange(y.numel(), device="cpu").view_as(y).sin()).sum().backward()
    return [y.detach(), *[each.grad for each in given if each.grad is not None]]


def test_run_makes_its_results_where_its_tensors_are(elsewhere: Callable[[], Any]) -> None:
    dy, x, weight = torch.randn(4, 6), torch.randn(4, 6), torch.randn(6)
    with elsewhere():
        mean, inv_std = x.mean(1, keepdim=True), (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt()
        results: Any = gradkern.run("LayerNormalizationGrad", dy, x, weight, mean, inv_std, axis=1)
    given = x.double().requires_grad_()
    functional.layer_norm(given, (6,), weight.double()).backward(dy.double())
    assert given.grad is not None
    assert_alike([results.X_grad], [given.grad])


ROWS = [(5, 24), (24,), (24,)]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "layer_norm": (
        lambda x, w, b: gradkern.torch.layer_norm(x, (24,), w, b),
        lambda x, w, b: functional.layer_norm(x, (24,), w, b),
        ROWS,
    ),
    "layer_norm without parameters": (
        lambda x: gradkern.torch.layer_norm(x, (24,)),
        lambda x: functional.layer_norm(x, (24,)),
        ROWS[:1],
    ),
    "rms_norm": (
        lambda x, w: gradkern.torch.rms_norm(x, (24,), w, 1e-5),
        lambda x, w: functional.rms_norm(x, (24,), w, 1e-5),
        ROWS[:2],
    ),
    "linear_gelu": (
        gradkern.torch.linear_gelu,
        lambda x, w, b: functional.gelu(functional.linear(x, w, b)),
        [(5, 24), (8, 24), (8,)],
    ),
    "linear_gelu without a bias": (
        gradkern.torch.linear_gelu,
        lambda x, w: functional.gelu(functional.linear(x, w)),
        [(5, 24), (8, 24)],
    ),
    "invertible_layer_norm": (
        lambda x, w, b: gradkern.torch.invertible_layer_norm(x, (24,), w, b),
        lambda x, w, b: functional.layer_norm(x, (24,), w, b),
        ROWS,
    ),
    "batch_norm": (
        lambda x, w, b: gradkern.torch.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        [(3, 4, 5, 5), (4,), (4,)],
    ),
    "batch_norm without parameters": (
        lambda x: gradkern.torch.batch_norm(x, None, None, training=True),
        lambda x: functional.batch_norm(x, None, None, training=True),
        [(3, 4, 5, 5)],
    ),
    "batch_norm_act": (
        lambda x, w, b: gradkern.torch.batch_norm_act(x, None, None, w, b, training=True, activation="relu"),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True).relu(),
        [(3, 4, 5, 5), (4,), (4,)],
    ),
    "conv2d": (
        lambda x, w, b: gradkern.torch.conv2d(x, w, b, padding=1),
        lambda x, w, b: functional.conv2d(x, w, b, padding=1),
        [(2, 3, 6, 6), (4, 3, 3, 3), (4,)],
    ),
    "depthwise conv2d": (
        lambda x, w, b: gradkern.torch.conv2d(x, w, b, padding=1, groups=3),
        lambda x, w, b: functional.conv2d(x, w, b, padding=1, groups=3),
        [(2, 3, 6, 6), (3, 1, 3, 3), (3,)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_compute_where_their_tensors_are(elsewhere: Callable[[], Any], name: str) -> None:
    function, reference, shapes = FUNCTIONS[name]
    tensors = [torch.randn(shape) for shape in shapes]
    expected = gradients(reference, [each.double() for each in tensors])
    with elsewhere():
        found = gradients(function, tensors)
    assert_alike(found, expected)


def test_parameters_of_another_type_than_their_data_are_no_exception(elsewhere: Callable[[], Any]) -> None:
    """16 bits with float32 parameters, whose gradients are made in another type than the data's."""
    x, weight, bias = torch.randn(5, 24).bfloat16(), torch.randn(24), torch.randn(24)
    expected = gradients(lambda x: functional.layer_norm(x, (24,), weight.double(), bias.double()), [x.double()])
    with elsewhere():
        found = gradients(lambda x: gradkern.torch.layer_norm(x, (24,), weight, bias), [x])
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == "cpu"
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)


def test_modules_train_where_their_parameters_are(elsewhere: Callable[[], Any]) -> None:
    """The modules that `accelerate` makes of PyTorch's."""
    plain = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8)
    )
    model = copy.deepcopy(plain)
    x = torch.randn(2, 3, 6, 6)
    expected = gradients(plain, [x])
    with elsewhere():
        gradkern.torch.accelerate(model)
        found = gradients(model, [x])
    assert_alike(found, expected)
    assert_alike([each.grad for each in model.parameters()], [each.grad for each in plain.parameters()])
    assert_alike(list(model.buffers()), list(plain.buffers()))


ENABLED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda x: functional.layer_norm(x, (24,)),  # with a constant in the place of its weight
    "gelu": functional.gelu,  # with one in the place of its bias
    "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "conv": lambda x: functional.conv1d(x[None], torch.linspace(-1, 1, 15, device="cpu").view(1, 5, 3)),
}


@pytest.mark.parametrize("name", ENABLED)
def test_enable_answers_where_the_tensors_are(elsewhere: Callable[[], Any], overrides: Any, name: str) -> None:
    step, x = ENABLED[name], torch.randn(5, 24)
    expected = [each.double() for each in gradients(step, [x])]  # the first call of a kind is PyTorch's
    with elsewhere():
        gradients(step, [x])
        found = gradients(step, [x])
    assert_alike(found, expected)
    assert overrides.report().taken


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.bn, self.conv, self.instance = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, bias=True), nn.InstanceNorm2d(4)

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        x = x + self.second(functional.gelu(self.first(self.norm(x))))
        y = functional.relu(self.instance(self.conv(functional.relu(self.bn(image) + image))))
        return functional.layer_norm(x + x, (32,)) + y.mean()


def test_compiled_code_computes_where_its_tensors_are(elsewhere: Callable[[], Any]) -> None:
    plain = Block()
    model = copy.deepcopy(plain)
    tensors = [torch.randn(6, 32), torch.randn(2, 4, 6, 6)]
    expected = gradients(plain, tensors)
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True, "fx_graph_cache": False})
    with elsewhere():
        found = gradients(compiled, tensors)
        found = gradients(compiled, tensors)  # by what the first call has left
    assert_alike(found, expected)


def nameless(tree: ast.AST) -> list[tuple[int, str]]:
    """Calls of PyTorch's factories, and references to them, without a device: line and name."""
    named: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):  # of the factory itself, or partial(factory, ...)
            given = {each.arg for each in node.keywords}
            given |= {
                key.value
                for each in node.args
                if isinstance(each, ast.Dict)
                for key in each.keys
                if isinstance(key, ast.Constant)
            }
            if {"device", "dtype"} <= given or None in given:
                named |= {id(each) for each in (node.func, *node.args)}
    return sorted(
        (node.lineno, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in FACTORIES
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
        and id(node) not in named
    )


def test_the_check_of_the_source_finds_what_it_looks_for() -> None:
    text = """
torch.empty(3)
partial(torch.empty_strided, (3,), (1,), dtype=dtype)
torch.zeros(3, dtype=x.dtype)
torch.zeros(3, dtype=x.dtype, device=x.device)
partial(torch.empty, 3, dtype=dtype, device="cpu")
graph.call_function(torch.ones, (3,), {"dtype": dtype, "device": device})
torch.empty(3, **kind)
make = torch.full
"""
    assert nameless(ast.parse(text)) == [(2, "empty"), (3, "empty_strided"), (4, "zeros"), (9, "full")]
    assert {"empty", "empty_strided", "full", "zeros", "ones", "tensor", "arange", "as_tensor"} <= FACTORIES


def test_every_tensor_is_made_on_a_device_and_of_a_type_that_are_named() -> None:
    found = {path: nameless(ast.parse(path.read_text(encoding="utf-8"))) for path in (ROOT / "gradkern").rglob("*.py")}
    assert {path: each for path, each in found.items() if each} == {}
