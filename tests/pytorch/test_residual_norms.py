"""layer_norm and rms_norm with a residual: the norm of the sum, and the sum, with the gradients of both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import gradkern
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


def of_two_types(kind: str, stream: int, parameter: torch.dtype) -> list[torch.Tensor]:
    """As under autocast: one of input and residual is float32, the other of 16 bits."""
    given = [each.detach() for each in leaves(kind, torch.float32, parameter, (64,))]
    given[1 - stream] = given[1 - stream].bfloat16()
    return [each.requires_grad_() for each in given]


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize(
    ("stream", "parameter", "dtype"),
    [
        (0, torch.float32, None),
        (1, torch.float32, torch.float32),
        (1, torch.float32, torch.bfloat16),
        (0, torch.bfloat16, torch.bfloat16),
    ],
)
def test_a_stream_of_float32_and_a_branch_of_16_bits_are_one_pass_each_way(
    kind: str, stream: int, parameter: torch.dtype, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, calls = of_two_types(kind, stream, parameter), []
    run = direct.run

    def noted(name: str, *arrays: Any, **named: Any) -> Any:
        calls.append(name)
        return run(name, *arrays, **named)

    monkeypatch.setattr(direct, "run", noted)
    wide = [each.detach().double().requires_grad_() for each in given]
    norm: Any = layer_norm if kind == "layer" else rms_norm
    y, total = norm(given[0], (64,), *given[2:], 1e-3, residual=given[1], dtype=dtype)
    assert (y.dtype, total.dtype) == (dtype or torch.float32, torch.float32)
    torch.testing.assert_close(total, given[0].detach() + given[1].detach(), rtol=0, atol=0)
    upstream = [torch.randn_like(each) for each in (y, total)]
    found = torch.autograd.grad((y, total), given, upstream)
    assert [each.dtype for each in found] == [each.dtype for each in given]
    expected = theirs(kind, *wide)
    exacts = torch.autograd.grad(expected, wide, [each.double() for each in upstream])
    for one, other in zip((y, *found), (expected[0], *exacts), strict=True):
        bound = 3e-3 if one.dtype is torch.bfloat16 else 1e-6
        assert (one.double() - other).norm() <= bound * other.norm()
    assert len(set(calls)) == 2
    assert all("Normalization" in name for name in calls)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True)])
def test_each_summand_alone_gets_its_gradient(kind: str, needs: tuple[bool, bool], used: tuple[bool, bool]) -> None:
    given = [each.detach() for each in of_two_types(kind, 1, torch.float32)]
    wanted = [each.requires_grad_() for each, need in zip(given, needs, strict=False) if need]
    norm: Any = layer_norm if kind == "layer" else rms_norm
    found = norm(given[0], (64,), *given[2:], 1e-3, residual=given[1])
    exact = theirs(kind, *given)
    upstream = [torch.randn_like(each) for each in found]
    chosen = [
        torch.autograd.grad(
            [each for each, use in zip(pair, used, strict=True) if use],
            wanted,
            [each for each, use in zip(upstream, used, strict=True) if use],
        )
        for pair in (found, exact)
    ]
    torch.testing.assert_close(*chosen)


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
def test_parameters_may_be_left_out(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, z = (torch.randn(4, 33, dtype=each, requires_grad=True) for each in dtypes)
    weight, bias = torch.randn(33, requires_grad=True), torch.randn(33, requires_grad=True)
    for given in ((None, None), (weight, None), (weight, bias), (None, bias)):
        found = layer_norm(x, (33,), *given, residual=z)
        torch.testing.assert_close(found, theirs_of(functional.layer_norm, x, z, *given))
        leaves_ = [each for each in (x, z, *given) if each is not None]
        grads = torch.autograd.grad(found[0].square().sum() + found[1].sum(), leaves_)
        exact = theirs_of(functional.layer_norm, x, z, *given)
        expected = torch.autograd.grad(exact[0].square().sum() + exact[1].sum(), leaves_)
        for one, other in zip(grads, expected, strict=True):
            torch.testing.assert_close(one, other)
    found = rms_norm(x, (33,), None, 1e-5, residual=z)
    torch.testing.assert_close(found, theirs_of(functional.rms_norm, x, z, None))


def theirs_of(norm: Any, x: torch.Tensor, z: torch.Tensor, *parameters: Any) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + z
    return norm(total, (33,), *parameters, eps=1e-5), total


def test_norms_of_two_types_have_second_derivatives() -> None:
    given = of_two_types("layer", 1, torch.float32)
    wide = [each.detach().double().requires_grad_() for each in given]

    def penalty(y: torch.Tensor, total: torch.Tensor, arrays: Any) -> Any:
        found = torch.autograd.grad((y.double() ** 2).sum() + total.double().sum(), arrays, create_graph=True)
        total_of_squares: Any = sum((each.double() ** 2).sum() for each in found)
        return torch.autograd.grad(total_of_squares, arrays)

    found = penalty(*ours("layer", *given), given)
    for one, other in zip(found, penalty(*theirs("layer", *wide), wide), strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).norm() <= 1e-2 * other.norm()


def test_a_residual_of_another_shape_or_of_types_apart_is_added_by_pytorchs_rules() -> None:
    x, z, *parameters = leaves("layer", torch.bfloat16, torch.float32)
    y, total = ours("layer", x, z.to(torch.float16), *parameters)  # no operator has these two
    assert (y.dtype, total.dtype) == (torch.float32, torch.float32)
    y, total = ours("layer", x.float(), z[:1].float(), *parameters)
    torch.testing.assert_close((y, total), theirs("layer", x.float(), z[:1].float(), *parameters))
    y, total = layer_norm(x, (5,), parameters[0], parameters[1], residual=z, dtype=torch.float32)
    assert (y.dtype, total.dtype) == (torch.float32, torch.bfloat16)


def test_a_type_of_the_norm_is_one_of_floats_and_beside_a_residual() -> None:
    x, z, *parameters = leaves("layer", torch.float32, torch.float32)
    norms: Any = ((layer_norm, parameters), (rms_norm, parameters[:1]))
    for norm, given in norms:
        name = norm.__name__
        with pytest.raises(gradkern.ArgumentError, match=f"{name}: dtype is torch.float16 without a residual"):
            norm(x, (5,), *given, dtype=torch.float16)
        with pytest.raises(gradkern.DTypeError, match=f"{name}: dtype is torch.int32; expected"):
            norm(x, (5,), *given, residual=z, dtype=torch.int32)
