"""group_norm, group_norm_act and the module GroupNorm against PyTorch's functions one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import gradkern.torch

pytestmark = pytest.mark.torch

bad: Any = "no"
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
ACTIVATIONS: dict[str, Any] = {
    "none": lambda t: t,
    "relu": functional.relu,
    "leaky_relu": lambda t: functional.leaky_relu(t, 0.2),
    "silu": functional.silu,
    "relu6": functional.relu6,
    "hardswish": functional.hardswish,
    "elu": lambda t: functional.elu(t, 0.2),
    "gelu": functional.gelu,
}


def draw(*shape: int, dtype: Any = F64) -> torch.Tensor:
    return torch.randn(shape, dtype=F64).to(dtype).requires_grad_()


def operands(shape: tuple[int, ...], dtype: Any, parameters: Any, sample: bool) -> list[Any]:
    given = [draw(*shape, dtype=dtype), *(draw(shape[1], dtype=parameters) for _ in range(2))]
    return [*given, *(draw(*shape[:2], dtype=dtype) if sample else None for _ in range(2))]


def in_steps(given: Any, groups: int, activation: str) -> torch.Tensor:
    doubled: list[Any] = [None if each is None else each.double() for each in given]
    x, weight, bias, scale, shift = doubled
    t = functional.group_norm(x, groups, weight, bias, 1e-3)
    shape = (*x.shape[:2], *(1,) * (x.dim() - 2))
    t = t if scale is None else t * (1 + scale.view(shape)) + shift.view(shape)
    return ACTIVATIONS[activation](t)


def ours(given: Any, groups: int, activation: str) -> torch.Tensor:
    x, weight, bias, scale, shift = given
    return gradkern.torch.group_norm_act(x, groups, weight, bias, 1e-3, activation, scale, shift, 0.2)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("shape", [(3, 8), (2, 6, 9), (2, 12, 4, 5), (2, 8, 2, 3, 4)])
def test_outputs_and_gradients_agree_with_pytorchs(shape: tuple[int, ...], sample: bool, activation: str) -> None:
    given = operands(shape, F32, F32, sample)
    there = [each for each in given if each is not None]
    y, expected = ours(given, 2, activation), in_steps(given, 2, activation)
    torch.testing.assert_close(y, expected.float())
    upstream = torch.randn(shape)
    found = torch.autograd.grad(y, there, upstream)
    for one, other in zip(found, torch.autograd.grad(expected, there, upstream.double()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "parameters"), [(F16, F16), (F16, F32), (BF16, BF16), (BF16, F32), (F64, F64)])
def test_every_type(dtype: Any, parameters: Any) -> None:
    given = operands((2, 12, 4, 5), dtype, parameters, True)
    y = ours(given, 3, "silu")
    assert y.dtype == dtype
    upstream = torch.randn(y.shape).to(dtype)
    expected = in_steps(given, 3, "silu")
    close: dict[str, Any] = {"rtol": 2e-2, "atol": 5e-2} if dtype != F64 else {}
    found = torch.autograd.grad(y, given, upstream)
    for one, other in zip(found, torch.autograd.grad(expected, given, upstream.double()), strict=True):
        torch.testing.assert_close(one, other, **close)


def test_channels_last_stays_channels_last() -> None:
    x, weight, bias, *_ = operands((2, 12, 4, 5), F32, F32, False)
    last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    y = gradkern.torch.group_norm(last, 3, weight, bias)
    y.backward(torch.ones_like(y))
    for each in (y, last.grad):
        assert each.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, functional.group_norm(x, 3, weight, bias))


def test_second_derivatives() -> None:
    given = operands((2, 4, 3), F64, F64, True)
    assert torch.autograd.gradgradcheck(lambda *each: ours(each, 2, "silu"), given)


def test_without_weight_and_of_nothing() -> None:
    x = draw(2, 6, 5, dtype=F32)
    torch.testing.assert_close(gradkern.torch.group_norm(x, 3), functional.group_norm(x, 3))
    empty = gradkern.torch.group_norm_act(torch.zeros(0, 6, 5), 3, torch.ones(6), torch.zeros(6))
    assert empty.shape == (0, 6, 5)


def test_under_autocast_the_function_keeps_the_type_and_the_module_follows_pytorchs() -> None:
    x, weight, bias, *_ = operands((2, 6, 5), BF16, F32, False)
    module = gradkern.torch.GroupNorm(3, 6, activation="silu")
    kept = gradkern.torch.GroupNorm(3, 6, activation="silu", autocast="input")
    with torch.autocast("cpu", dtype=BF16):
        assert gradkern.torch.group_norm_act(x, 3, weight, bias).dtype == BF16
        assert module(x).dtype == functional.group_norm(x, 3, weight, bias).dtype
        assert kept(x).dtype == BF16


def test_the_module_has_pytorchs_parameters() -> None:
    module, plain = gradkern.torch.GroupNorm(3, 6, 1e-3, activation="gelu"), torch.nn.GroupNorm(3, 6, 1e-3)
    plain.load_state_dict(module.state_dict())
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(module(x), functional.gelu(plain(x)))
    assert "activation='gelu'" in repr(module)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: gradkern.torch.group_norm(x, 4), r"6 channels, which 4 groups do not divide"),
        (lambda x: gradkern.torch.group_norm_act(x, 3, activation="tanh"), r"activation is 'tanh'"),
        (lambda x: gradkern.torch.group_norm(x, 3, torch.ones(5)), r"weight has shape \(5,\); expected \(6,\)"),
        (lambda x: gradkern.torch.group_norm_act(x, 3, sample_scale=torch.ones(2, 5)), r"sample_scale has shape"),
        (lambda x: gradkern.torch.group_norm(x, 3, eps=bad), r"eps is 'no'; expected a number"),
    ],
)
def test_what_does_not_fit_is_an_error(call: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        call(torch.randn(2, 6, 5))


def test_enable_answers_group_norms_of_models() -> None:
    model = torch.nn.Sequential(torch.nn.GroupNorm(2, 6), torch.nn.GroupNorm(3, 6))
    x = torch.randn(4, 6, 40, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x).square().sum(), x)
    with gradkern.torch.enabled("group_norm", devices="cpu", min_bytes=0, plan="now"):
        for _ in range(2):  # the first call of a kind makes the plan
            (found,) = torch.autograd.grad(model(x).square().sum(), x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    rows = gradkern.torch.report().rows
    assert sum(row.taken for row in rows if row.op == "native_group_norm_backward") == 2
