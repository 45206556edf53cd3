"""gradkern.torch's cross entropies against PyTorch's: values, gradients, types, autocast, retained graphs, errors."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from helpers.calls import message
from torch.nn import functional

import gradkern.torch
from gradkern.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from gradkern.torch import cross_entropy, linear_cross_entropy

pytestmark = pytest.mark.torch
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16


def data(*shape: int, dtype: Any = F64) -> torch.Tensor:
    return torch.randn(shape, dtype=F64).to(dtype).requires_grad_()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.dtype is theirs.dtype
    tolerance = {F64: 1e-11, F32: 1e-5, BF16: 2e-2, F16: 4e-3}[ours.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(7,), (6, 7), (4, 7, 3), (2, 7, 3, 5)])
def test_labels_and_probabilities(shape: tuple[int, ...], reduction: str) -> None:
    rows = (shape[0], *shape[2:]) if len(shape) > 1 else ()
    for smoothing, weighted, dense in product((0.0, 0.2), (False, True), (False, True)):
        x = data(*shape)
        target: Any = torch.randint(0, 7, rows) if not dense else data(*shape).detach().softmax(min(1, len(shape) - 1))
        weight = torch.rand(7, dtype=F64) + 0.5 if weighted else None
        options: dict[str, Any] = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
        options |= {} if dense else {"ignore_index": 3}
        ours, theirs = cross_entropy(x, target, **options), functional.cross_entropy(x, target, **options)
        close(ours, theirs)
        upstream = torch.randn_like(theirs)  # varies where the reduction is none
        close(*(torch.autograd.grad(each, x, upstream, retain_graph=True)[0] for each in (ours, theirs)))


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
def test_the_loss_has_the_logits_type_and_float32_under_autocast(dtype: Any) -> None:
    x, target = data(6, 33, dtype=dtype), torch.randint(0, 33, (6,))
    ours, theirs = cross_entropy(x, target), functional.cross_entropy(x.float(), target)
    assert ours.dtype is dtype
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-2, atol=1e-2)
    close(torch.autograd.grad(ours, x)[0], torch.autograd.grad(theirs, x)[0])
    with torch.autocast("cpu", BF16):
        assert cross_entropy(x, target).dtype is F32


def test_all_labels_ignored_is_nan_with_gradients_of_0() -> None:
    x, target = data(4, 5), torch.full((4,), -100)
    loss = cross_entropy(x, target)
    assert loss.isnan()
    assert not torch.autograd.grad(loss, x)[0].any()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_no_rows_at_all(reduction: str) -> None:
    for shape, target in (
        ((0, 5), torch.zeros(0, dtype=torch.int64)),
        ((2, 5, 0), torch.zeros(2, 0, dtype=torch.int64)),
        ((0, 5), torch.zeros(0, 5, dtype=F64)),
    ):
        x = data(*shape)
        ours = cross_entropy(x, target, reduction=reduction)
        torch.testing.assert_close(ours, functional.cross_entropy(x, target, reduction=reduction), equal_nan=True)
        assert torch.autograd.grad(ours.sum(), x)[0].shape == shape
    x, w, target = data(0, 3), data(5, 3), torch.zeros(0, dtype=torch.int64)
    ours = linear_cross_entropy(x, w, target, reduction=reduction)
    theirs = functional.cross_entropy(functional.linear(x, w), target, reduction=reduction)
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert not torch.autograd.grad(ours.sum(), w)[0].any()


def test_weights_of_0_for_all_labels_are_nan_with_label_smoothing_too() -> None:
    x, target, weight = data(3, 4), torch.tensor([1, 1, -100]), torch.tensor([1.0, 0.0, 2.0, 3.0], dtype=F64)
    for smoothing in (0.0, 0.3):
        ours, theirs = (
            f(x, target, weight, label_smoothing=smoothing) for f in (cross_entropy, functional.cross_entropy)
        )
        assert ours.isnan()
        assert theirs.isnan()
        found, expected = (torch.autograd.grad(each, x)[0] for each in (ours, theirs))
        torch.testing.assert_close(found[:2], expected[:2], equal_nan=True)
        assert not found[2].any()  # an ignored row's gradient is 0, whatever the norm


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_probabilities_keep_their_digits_beside_logits_of_16_bits(dtype: Any) -> None:
    x, target = data(4, 9, dtype=dtype), data(4, 9, dtype=F32).detach().softmax(1)
    ours, theirs = cross_entropy(x, target), functional.cross_entropy(x.float(), target)
    close(ours, theirs)
    assert functional.cross_entropy(x, target).dtype is ours.dtype
    close(torch.autograd.grad(ours, x)[0], torch.autograd.grad(theirs, x)[0])


def test_labels_of_every_integer_type() -> None:
    x = data(5, 9)
    for kind in (torch.uint8, torch.int8, torch.int16, torch.int32):
        target = torch.tensor([0, 8, 3, 3, 1], dtype=kind)
        close(cross_entropy(x, target), functional.cross_entropy(x, target.long()))


def test_z_loss_and_softcap_are_their_formulas() -> None:
    x, target, weight = data(6, 7), torch.tensor([1, 2, -100, 3, 6, 0]), torch.rand(7, dtype=F64) + 0.5
    for reduction in ("mean", "sum", "none"):
        z = 3 * torch.tanh(x / 3)
        theirs = functional.cross_entropy(z, target, weight, reduction="none")
        theirs = theirs + torch.where(target != -100, 0.1 * z.logsumexp(1) ** 2, 0)
        norm = (weight[target.clamp(0)] * (target != -100)).sum()
        theirs = {"none": theirs, "sum": theirs.sum(), "mean": theirs.sum() / norm}[reduction]
        ours = cross_entropy(x, target, weight, reduction=reduction, z_loss=0.1, softcap=3.0)
        close(ours, theirs)
        upstream = torch.randn_like(theirs)
        close(*(torch.autograd.grad(each, x, upstream, retain_graph=True)[0] for each in (ours, theirs)))


def test_in_place_the_gradient_has_the_logits_memory() -> None:
    x, target = data(6, 7), torch.randint(0, 7, (6,))
    z = x * 1
    expected = torch.autograd.grad(functional.cross_entropy(z, target), z, retain_graph=True)[0]
    loss = cross_entropy(z, target, in_place=True)
    (found,) = torch.autograd.grad(loss, z)
    assert found.data_ptr() == z.data_ptr()
    close(found, expected)
    assert "in_place with a leaf as input" in message(ArgumentError, cross_entropy, x, target, in_place=True)


def test_batches_of_upstream_gradients() -> None:
    x, w, target, upstream = data(6, 7), data(9, 7), torch.randint(0, 7, (6,)), torch.arange(3.0, dtype=F64)
    for ours, theirs, leaves in (
        (cross_entropy(x, target), functional.cross_entropy(x, target), (x,)),
        (
            linear_cross_entropy(x, w, target),
            functional.cross_entropy(functional.linear(x, w), target),
            (x, w),
        ),
    ):
        found, expected = (
            torch.autograd.grad(each, leaves, upstream, is_grads_batched=True) for each in (ours, theirs)
        )
        for one, two in zip(found, expected, strict=True):
            close(one, two)


def test_second_derivatives_and_retained_graphs() -> None:
    x, target = data(3, 4), torch.tensor([0, 3, 1])
    assert torch.autograd.gradgradcheck(lambda x: cross_entropy(x, target, label_smoothing=0.1), (x,))
    loss = cross_entropy(x, target)
    first = torch.autograd.grad(loss, x, retain_graph=True)[0]
    close(torch.autograd.grad(loss, x)[0], first)
    hidden, weight = data(3, 5), data(4, 5)
    loss = linear_cross_entropy(hidden, weight, target)
    first = [each.clone() for each in torch.autograd.grad(loss, (hidden, weight), torch.tensor(2.0), retain_graph=True)]
    for one, two in zip(first, torch.autograd.grad(loss, (hidden, weight), torch.tensor(2.0)), strict=True):
        close(two, one)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("biased", [False, True])
def test_the_linear_layer_too(biased: bool, reduction: str) -> None:
    x, w, b = data(2, 9, 6), data(11, 6), data(11) if biased else None
    target = torch.randint(0, 11, (2, 9))
    target[0, 1::3] = -100
    for smoothing, weight in product((0.0, 0.1), (None, torch.rand(11, dtype=F64) + 0.5)):
        options: dict[str, Any] = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
        theirs = functional.cross_entropy(functional.linear(x, w, b).flatten(0, 1), target.flatten(), **options)
        theirs = theirs.view(2, 9) if reduction == "none" else theirs
        ours = linear_cross_entropy(x, w, target, linear_bias=b, **options)
        close(ours, theirs)
        leaves = [each for each in (x, w, b) if each is not None]
        upstream = torch.randn_like(theirs)
        found = torch.autograd.grad(ours, leaves, upstream)
        for one, two in zip(found, torch.autograd.grad(theirs, leaves, upstream), strict=True):
            close(one, two)


def test_float32_master_weights_under_autocast() -> None:
    x, w, target = data(40, 16, dtype=F32), data(33, 16, dtype=F32), torch.randint(0, 33, (40,))
    with torch.autocast("cpu", BF16):
        ours = linear_cross_entropy(x, w, target)
        theirs = functional.cross_entropy(functional.linear(x, w), target)
    assert ours.dtype is F32
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
    for one, two in zip(*(torch.autograd.grad(each, (x, w)) for each in (ours, theirs)), strict=True):
        assert one.dtype is F32
        torch.testing.assert_close(one, two, rtol=3e-2, atol=1e-3)


def test_the_module_is_the_function() -> None:
    x, target = data(6, 7), torch.randint(0, 7, (6,))
    weight = torch.rand(7, dtype=F64)
    module = gradkern.torch.CrossEntropyLoss(weight, ignore_index=2, label_smoothing=0.1)
    close(module(x, target), torch.nn.CrossEntropyLoss(weight, ignore_index=2, label_smoothing=0.1)(x, target))


def test_under_torch_func_it_is_pytorchs() -> None:
    x, target = data(6, 7).detach(), torch.randint(0, 7, (6,))
    ours = torch.func.grad(lambda x: cross_entropy(x, target.int()))(x)
    close(ours, torch.func.grad(lambda x: functional.cross_entropy(x, target))(x))


def test_what_does_not_fit_is_refused_by_name() -> None:
    x, target = data(6, 7), torch.randint(0, 7, (6,))
    assert message(ShapeError, cross_entropy, x, target[:5]) == (
        "cross_entropy: target has shape (5,); expected (6, 7) of probabilities, or (6,) of labels"
    )
    assert message(AttributeValueError, cross_entropy, x, target, reduction="avg") == (
        "cross_entropy: reduction is 'avg'; expected 'none', 'mean' or 'sum'"
    )
    assert message(AttributeValueError, cross_entropy, x, target, label_smoothing=2) == (
        "cross_entropy: label_smoothing is 2; expected a number from 0 to 1"
    )
    found = message(ArgumentError, cross_entropy, x, data(6, 7).detach().softmax(1), ignore_index=2)
    assert found == "cross_entropy: ignore_index is 2 with probabilities; expected labels"
    assert message(DTypeError, cross_entropy, x, target > 3) == (
        "cross_entropy: target has type bool; expected labels of an integer type"
    )
    assert "target is a list; expected a tensor" in message(ArgumentError, cross_entropy, x, [1])
    assert "expected (..., features), (classes, features) and (...)" in message(
        ShapeError, linear_cross_entropy, x, data(5, 6), target
    )
