"""Gradients of embeddings' weights in PyTorch: PyTorch's own samples, types, orders in memory, compiled models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import opinfo
from helpers.tolerance import NORM
from torch.nn import functional

import gradkern.torch
from gradkern.torch.compile_backend.dynamo_graph import fusion

pytestmark = [pytest.mark.torch, pytest.mark.thorough]

SAMPLES = range(len(opinfo.samples("nn.functional.embedding")))
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    gradkern.torch.forget()
    yield
    gradkern.torch.forget()
    torch.compiler.reset()


def close(found: Any, exact: Any) -> None:
    assert found.shape == exact.shape
    wrong = (found.double().cpu() - exact).norm()
    assert wrong <= 2 * NORM[str(found.dtype).removeprefix("torch.")] * exact.norm()


@devices
@pytest.mark.parametrize("place", SAMPLES)
def test_pytorchs_samples(place: int, device: str) -> None:
    sample = opinfo.samples("nn.functional.embedding")[place]
    (indices,), how = sample.args, {"max_norm": None, **sample.kwargs}
    sparse, by_frequency = how.get("sparse", False), how.get("scale_grad_by_freq", False)
    if how["max_norm"] is not None:
        pytest.skip("the forward pass writes to the weight")
    wide = sample.input.detach().clone().requires_grad_()
    y = functional.embedding(indices, wide, **how)
    upstream = torch.randn_like(y)
    (exact,) = torch.autograd.grad(y, wide, upstream)
    weight = wide.detach().to(device, torch.float32).requires_grad_()
    with gradkern.torch.enabled(devices=device, min_bytes=0, plan="now"):
        found: Any = None
        for _ in range(2):  # the first is PyTorch's
            y = functional.embedding(indices.to(device), weight, **how)
            (found,) = torch.autograd.grad(y, weight, upstream.to(device, torch.float32))
        report = gradkern.torch.report()
    if not sparse:
        close(found, exact)
    assert report.taken == (0 if sparse or by_frequency or not indices.numel() else 1), str(report)
    if by_frequency and not sparse:
        assert "scale_grad_by_freq" in next(iter(report)).reason


ORDERS: dict[str, tuple[tuple[int, ...], Any]] = {
    "C": ((5, 12, 6), lambda grad: grad),
    "transposed": ((6, 12, 5), lambda grad: grad.permute(2, 1, 0)),
    "expanded": ((5, 12, 1), lambda grad: grad.expand(5, 12, 6)),
    "every second": ((5, 12, 12), lambda grad: grad[..., ::2]),
}


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("order", ORDERS)
def test_types_and_orders_in_memory(dtype: torch.dtype, order: str, device: str) -> None:
    indices = torch.randint(0, 9, (5, 12), dtype=torch.int32 if dtype == torch.float32 else torch.int64)
    shape, laid = ORDERS[order]
    grad = laid(torch.randn(shape).to(device, dtype))
    exact = torch.ops.aten.embedding_dense_backward(grad.double().cpu(), indices, 11, 4, False)
    with gradkern.torch.enabled(devices=device, min_bytes=0, plan="now", on_refusal="raise"):
        found: Any = None
        for _ in range(2):
            found = torch.ops.aten.embedding_dense_backward(grad, indices.to(device), 11, 4, False)
        assert gradkern.torch.report().taken == 1
    close(found, exact)


def model(padding_idx: int | None = 3) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(50, 16, padding_idx), torch.nn.Linear(16, 4))


def gradient(net: Any, call: Any, indices: Any) -> Any:
    net.zero_grad()
    call(indices).square().sum().backward()
    return net[0].weight.grad.clone()


@pytest.mark.parametrize("padding_idx", [None, -2, 0])
def test_the_backend_computes_gradients_and_leaves_forward_passes_to_inductor(
    padding_idx: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.utils import run_and_get_code

    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    net, indices = model(padding_idx), torch.randint(0, 50, (8, 32))
    expected = gradient(net, net, indices)
    compiled = torch.compile(net, backend="gradkern", fullgraph=True, options={"gradkern": True})
    found, code = run_and_get_code(lambda: gradient(net, compiled, indices))
    torch.testing.assert_close(found, expected)
    assert ["with_gradient_backward" in each for each in code] == [False, True]
    assert not any(re.search(r"with_gradient\b", each) for each in code)
    assert torch.equal(gradient(net, compiled, indices), found)


@pytest.mark.usefixtures("graphs_as_they_are")
@pytest.mark.parametrize(("option", "value"), [("scale_grad_by_freq", True), ("max_norm", 0.0)])
def test_the_backend_says_what_it_leaves(option: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    net, indices = model(), torch.randint(0, 50, (8, 32))
    setattr(net[0], option, value)
    expected = gradient(net, net, indices)
    found = gradient(net, torch.compile(net, backend="gradkern", options={"gradkern": True}), indices)
    torch.testing.assert_close(found, expected)
    assert "scale_grad_by_freq" in str(gradkern.torch.report())
