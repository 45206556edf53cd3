"""gradkern.torch.rotary_embedding against transformers' and PyTorch's formulas, both ways, in either memory order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gradkern.torch
from gradkern.errors import ShapeError

pytestmark = pytest.mark.torch


def tables(batch: int, sequence: int, half: int, dtype: Any) -> tuple[Any, Any]:
    angles = torch.arange(sequence)[:, None] / 10000 ** (torch.arange(half) / half)
    angles = angles + torch.arange(batch)[:, None, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def halves(x: Any, cos: Any, sin: Any) -> Any:
    """As transformers' apply_rotary_pos_emb has it."""
    x1, x2 = x.chunk(2, -1)
    cos, sin = (torch.cat((each, each), -1)[:, None] for each in (cos, sin))
    return x * cos + torch.cat((-x2, x1), -1) * sin


def neighbours(x: Any, cos: Any, sin: Any) -> Any:
    """As Llama's first code has it: complex numbers."""
    turn = torch.complex(cos, sin)[:, None]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_both_ways(interleaved: bool, transposed: bool) -> None:
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64)
    x = (x.transpose(1, 2) if transposed else x.reshape(2, 3, 5, 8)).requires_grad_()
    cos, sin = tables(2, 5, 4, torch.float64)
    y = gradkern.torch.rotary_embedding(x, cos, sin, interleaved)
    expected = (neighbours if interleaved else halves)(x, cos, sin)
    torch.testing.assert_close(y, expected)
    assert y.stride() == x.stride()
    grad = torch.randn_like(y)
    (ours,), (theirs,) = (torch.autograd.grad(each, x, grad) for each in (y, expected))
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(lambda x: gradkern.torch.rotary_embedding(x, cos, sin, interleaved), x)
    assert torch.autograd.gradgradcheck(lambda x: gradkern.torch.rotary_embedding(x, cos, sin, interleaved), x)


@pytest.mark.parametrize(
    ("dtype", "table"), [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "float32")]
)
def test_a_part_of_each_row_and_tables_for_all_samples(dtype: str, table: str) -> None:
    x = torch.randn(2, 3, 5, 12).to(getattr(torch, dtype)).requires_grad_()
    cos, sin = (each[0] for each in tables(1, 5, 4, getattr(torch, table)))
    y = gradkern.torch.rotary_embedding(x, cos, sin)
    expected = halves(x.detach().double()[..., :8], cos[None].double(), sin[None].double())
    torch.testing.assert_close(y[..., :8], expected.to(x.dtype), rtol=1e-2 if dtype == "bfloat16" else 1e-5, atol=1e-5)
    assert torch.equal(y[..., 8:], x[..., 8:])
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.dtype is x.dtype


def test_tables_that_need_gradients_get_them() -> None:
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    cos, sin = (each.requires_grad_() for each in tables(1, 3, 2, torch.float64))
    assert torch.autograd.gradcheck(lambda c, s: gradkern.torch.rotary_embedding(x, c, s), (cos, sin))


@pytest.mark.parametrize("compiled", [False, True])
def test_one_sample_of_tables_for_all(compiled: bool) -> None:
    """As transformers' models make them, whose positions are the same in each sample."""
    x = torch.randn(3, 2, 5, 8, requires_grad=True)
    cos, sin = tables(1, 5, 4, torch.float32)
    function = gradkern.torch.rotary_embedding
    y = (torch.compile(function, backend="aot_eager") if compiled else function)(x, cos, sin)
    expected = halves(x, cos, sin)
    torch.testing.assert_close(y, expected)
    grad = torch.randn_like(y)
    torch.testing.assert_close(torch.autograd.grad(y, x, grad), torch.autograd.grad(expected, x, grad))


@pytest.mark.parametrize("table", ["float32", "float64"])
def test_tables_of_no_angles_turn_nothing(table: str) -> None:
    x = torch.randn(2, 3, 5, 8)
    cos = torch.empty(5, 0, dtype=getattr(torch, table))
    assert torch.equal(gradkern.torch.rotary_embedding(x, cos, cos), x)


def test_under_torch_compile() -> None:
    x = torch.randn(2, 3, 5, 8, requires_grad=True)
    cos, sin = tables(2, 5, 4, torch.float32)
    compiled = torch.compile(lambda x: gradkern.torch.rotary_embedding(x, cos, sin).square().sum(), backend="aot_eager")
    (ours,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(halves(x, cos, sin).square().sum(), x)[0])


def test_what_does_not_fit_is_refused_by_name() -> None:
    cos, sin = tables(2, 5, 4, torch.float32)
    with pytest.raises(ShapeError, match=r"rotary_embedding: input has shape \(3, 5, 8\); expected \(batch, heads"):
        gradkern.torch.rotary_embedding(torch.ones(3, 5, 8), cos, sin)
    with pytest.raises(ShapeError, match=r"rotary_embedding: cos has shape \(2, 5, 4\); expected \(2, 6, 4\)"):
        gradkern.torch.rotary_embedding(torch.ones(2, 3, 6, 8), cos, sin)
    with pytest.raises(ShapeError, match="with at most 3 angles"):
        gradkern.torch.rotary_embedding(torch.ones(2, 3, 5, 6), cos, sin)
