"""layer_norm and rms_norm with a residual: the norm of the sum, and the sum, with the gradients of both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from gradkern.torch import direct, layer_norm, rms_norm

pytestmark = pytest.mark.torch


def leaves(kind: str, dtype: torch.dtype, parameter: torch.dtype, shape: tuple[int, ...] = (5,)) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    data = [torch.randn(3, 4, *shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2)]
    count = 2 if kind == "layer" else 1
    parameters = [torch.randn(shape, generator=generator, dtype=torch.float64).to(parameter) for _ in range(count)]
    return [each.requires_grad_() for each in (*data, *parameters)]


def ours(kind: str, x: Any, z: Any, *parameters: Any) -> tuple[torch.Tensor, torch.Tensor]:
    shape = parameters[0].shape
    if kind == "layer":
        return layer_norm(x, shape, parameters[0], parameters[1], 1e-3, residual=z)
    return rms_norm(x, shape, parameters[0], 1e-3, residual=z)


def theirs(kind: str, x: Any, z: Any, *parameters: Any) -> tuple[torch.Tensor, torch.Tensor]:
    total, shape = x + z, parameters[0].shape
    norm = functional.layer_norm if kind == "layer" else functional.rms_norm
    return norm(total, shape, *parameters, eps=1e-3), total


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_the_norm_and_the_sum_are_those_of_the_parts(kind: str, shape: tuple[int, ...]) -> None:
    given = leaves(kind, torch.float64, torch.float64, shape)
    for used in ((True, True), (True, False), (False, True)):
        found, expected = ours(kind, *given), theirs(kind, *given)
        torch.testing.assert_close(found, expected)
        upstream = [torch.randn_like(each) for each in found]
        chosen = [
            torch.autograd.grad(
                [each for each, use in zip(pair, used, strict=True) if use],
                given,
                [each for each, use in zip(upstream, used, strict=True) if use],
                allow_unused=True,
            )
            for pair in (found, expected)
        ]
        torch.testing.assert_close(*chosen)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("parameter", [torch.bfloat16, torch.float32])
def test_in_16_bits_they_are_those_of_the_rounded_sum(kind: str, parameter: torch.dtype) -> None:
    given = leaves(kind, torch.bfloat16, parameter, (64,))
    wide = [each.detach().double().requires_grad_() for each in given]
    y, total = ours(kind, *given)
    assert (y.dtype, total.dtype) == (torch.bfloat16, torch.bfloat16)
    exact = wide[0] + wide[1]
    exact = exact + (total.detach().double() - exact.detach())  # of its value, and with its derivative
    expected = theirs(kind, exact, torch.zeros_like(exact), *wide[2:])
    upstream = [torch.randn_like(each) for each in (y, total)]
    found = torch.autograd.grad((y, total), given, upstream)
    exacts = torch.autograd.grad(expected, wide, [each.double() for each in upstream])
    for one, other in zip((y, *found), (expected[0], *exacts), strict=True):
        assert (one.double() - other).norm() <= 3e-3 * other.norm()


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_they_have_first_and_second_derivatives(kind: str) -> None:
    given = leaves(kind, torch.float64, torch.float64)
    assert torch.autograd.gradcheck(lambda *each: ours(kind, *each), given)
    assert torch.autograd.gradgradcheck(lambda *each: ours(kind, *each), given)


def test_the_sums_gradient_goes_into_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    given, calls = leaves("layer", torch.float32, torch.float32), []
    run = direct.run

    def noted(name: str, *arrays: Any, **named: Any) -> Any:
        calls.append((name, len(arrays) == 6 and arrays[5] is not None, named["outputs"]))
        return run(name, *arrays, **named)

    monkeypatch.setattr(direct, "run", noted)
    frozen = [given[0], *(each.detach() for each in given[1:])]
    y, total = ours("layer", *frozen)
    torch.autograd.grad(y.sum() + total.sum(), frozen[0])
    forward = ("output", "mean", "inv_std_var", "input_skip_bias_sum")
    assert calls == [("SkipLayerNormalization", False, forward), ("LayerNormalizationGrad", True, ("X_grad",))]


def test_a_residual_of_another_shape_or_type_is_added_by_pytorchs_rules() -> None:
    x, z, *parameters = leaves("layer", torch.bfloat16, torch.float32)
    y, total = ours("layer", x, z.float(), *parameters)
    assert (y.dtype, total.dtype) == (torch.float32, torch.float32)
    y, total = ours("layer", x.float(), z[:1].float(), *parameters)
    torch.testing.assert_close((y, total), theirs("layer", x.float(), z[:1].float(), *parameters))
