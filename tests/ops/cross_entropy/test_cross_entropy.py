"""Cross entropy on the CPU: what others got wrong, against float64 mathematics, differences and PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.calls import message, run_any
from helpers.reference import directional_difference, reference
from helpers.tolerance import assert_close, norm_of
from numpy.typing import NDArray

import gradkern
from gradkern.contract.registry import operators
from gradkern.errors import ArgumentError, AttributeValueError, DataError
from gradkern.ops.cross_entropy.parts import chunks

b, h, f, d = "bfloat16", "float16", "float32", "float64"
EVERY = ["loss", "dX", "row_loss", "entropy"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum", "label_smoothing": 0.1},
    {"reduction": "none", "z_loss": 0.01},
    {"softcap": 3.0, "label_smoothing": 0.3, "z_loss": 0.1},
    {"softcap": 12.0, "capped": 1},
]


def problem(
    shape: tuple[int, ...], dtype: str = f, *, ignored: int | None = -100, weighted: bool = True
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    rows = (shape[0], *shape[2:])
    labels = random.integers(0, shape[1], rows)
    if ignored is not None:
        labels.flat[:: max(2, labels.size // 3)] = ignored
    given = {"X": (3 * random.standard_normal(shape)).astype(dtype), "labels": labels}
    if weighted:
        given["weight"] = random.uniform(0.5, 2, shape[1]).astype(d if dtype == d else f)
    return given


def probabilities(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    drawn = np.random.default_rng(1).uniform(0, 1, shape)
    return (drawn / drawn.sum(1, keepdims=True)).astype(dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(7, 1), (7, 2), (5, 33), (2, 5, 3, 4), (3, 50257)])
def test_labels_and_probabilities_with_every_option(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    given = problem(shape)
    dense = {"X": given["X"], "weight": given["weight"], "probabilities": probabilities(shape, f)}
    for inputs in (given, dense):
        if options.get("reduction") == "none":
            rows = (shape[0], *shape[2:])
            inputs["dY"] = np.random.default_rng(2).standard_normal(rows).astype(f)
        expected = reference("CrossEntropy", inputs, options)
        for name, array in run_any("CrossEntropy", **inputs, **options, outputs=EVERY)._asdict().items():
            assert_close(
                "CrossEntropy", name, array, expected[name], np.asarray(given["X"].astype(d) / len(given["X"]))
            )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dense", [False, True])
def test_the_gradient_agrees_with_differences_of_the_loss(dense: bool, options: dict[str, Any]) -> None:
    given = problem((6, 9, 2), d)
    if dense:
        given = {**given, "probabilities": probabilities((6, 9, 2), d)}
        del given["labels"]
    random = np.random.default_rng(3)
    upstream = random.standard_normal((6, 2) if options.get("reduction") == "none" else ())
    X = given.pop("X")

    def logits(value: NDArray[np.float64]) -> NDArray[np.float64]:
        cap = options["softcap"] if options.get("capped") else 0.0
        return cap * np.tanh(value / cap) if cap else value

    dX = run_any("CrossEntropy", logits(X), **given, dY=upstream, **options, outputs=["dX"]).dX

    def loss(value: NDArray[np.float64]) -> float:
        value = logits(value)
        return float((upstream * run_any("CrossEntropy", X=value, **given, **options, outputs=["loss"]).loss).sum())

    for _ in range(3):
        direction = random.standard_normal(X.shape)
        difference = directional_difference(loss, X, direction)
        assert abs(difference - (dX * direction).sum()) <= 1e-9 * np.linalg.norm(dX) * np.linalg.norm(direction)


@pytest.mark.parametrize("dtype", [b, h, f])
def test_the_true_class_keeps_its_digits_where_it_is_nearly_certain(dtype: str) -> None:
    """p - 1 from a rounded p is 0 where p is 0.999; see Liger-Kernel's pull requests 1268 and 1329."""
    classes = 1000
    for missing in (0.5, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        X = np.zeros((1, classes))
        X[0, 7] = np.log((1 - missing) / missing * (classes - 1))
        X = X.astype(dtype)
        wide = np.exp(X.astype(d) - X.astype(d).max())
        others = wide.sum() - wide[0, 7]
        exact = -(wide.sum() - 1) / wide.sum()
        assert abs(others + exact * wide.sum()) < 1e-12
        found = gradkern.run("CrossEntropy", X, np.array([7]), reduction="sum")
        rounding, least = norm_of("", found.dX.dtype, 1), float(ml_dtypes.finfo(dtype).smallest_subnormal)
        assert abs(float(found.dX[0, 7]) - exact) <= -(rounding + 2e-6) * exact + least, missing
        assert abs(float(found.loss) / -np.log1p(exact) - 1) <= 2e-6, missing
        log_prob = gradkern.run("SoftmaxCrossEntropyLoss", X, np.array([7])).log_prob
        grad = gradkern.run("SoftmaxCrossEntropyLossGrad", np.ones((), dtype), log_prob, np.array([7])).d_logits
        assert abs(float(grad[0, 7]) - exact) <= -2 * (rounding + 2e-6) * exact + 2 * least, missing  # log_prob's, too


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_where_no_label_counts_gradients_are_0(reduction: str) -> None:
    X, labels = np.random.default_rng(0).standard_normal((4, 5)).astype(f), np.full(4, -100)
    log_prob = run_any("SoftmaxCrossEntropyLoss", X, labels, reduction=reduction, ignore_index=-100)
    np.testing.assert_array_equal(log_prob.output, 0)
    expected = reference("SoftmaxCrossEntropyLoss", {"scores": X, "labels": labels}, {"ignore_index": -100})
    np.testing.assert_allclose(log_prob.log_prob, expected["log_prob"], rtol=1e-6)  # as that of any row
    dY = np.ones(4 if reduction == "none" else (), f)
    attributes: dict[str, Any] = {"reduction": reduction, "ignore_index": -100}
    grad = run_any("SoftmaxCrossEntropyLossGrad", dY, log_prob.log_prob, labels, **attributes).d_logits
    np.testing.assert_array_equal(grad, 0)
    bias = np.ones_like(X)
    grad = run_any("SoftmaxCrossEntropyLossInternalGrad", dY, log_prob.log_prob, labels, bias=bias, **attributes)
    np.testing.assert_array_equal(grad.d_logits, 1)
    for empty, mean in (("zero", 0.0), ("nan", np.nan)):
        found = run_any("CrossEntropy", X, labels, reduction=reduction, empty=empty, outputs=EVERY)
        np.testing.assert_array_equal(found.loss, mean if reduction == "mean" else 0)
        np.testing.assert_array_equal(found.dX, 0)
        np.testing.assert_array_equal(found.row_loss, 0)


def test_where_all_weights_that_count_are_0_the_loss_is_nan_and_the_gradient_0() -> None:
    X, labels, weights = np.ones((2, 3), f), np.array([1, 1]), np.array([1, 0, 1], f)
    found = gradkern.run("SoftmaxCrossEntropyLoss", X, labels, weights)
    assert np.isnan(found.output)
    grad = gradkern.run("SoftmaxCrossEntropyLossGrad", np.ones((), f), found.log_prob, labels, weights)
    np.testing.assert_array_equal(grad.d_logits, 0)
    np.testing.assert_array_equal(gradkern.run("CrossEntropy", X, labels, weights).dX, 0)
    assert np.isnan(gradkern.run("CrossEntropy", X, labels, weights, empty="nan").dX).all()  # as PyTorch's


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_no_rows_at_all(reduction: str) -> None:
    X, W, labels = np.ones((0, 5), f), np.ones((4, 5), f), np.zeros(0, np.int64)
    for empty, mean in (("zero", 0.0), ("nan", np.nan)):
        found = run_any("CrossEntropy", X, labels, reduction=reduction, empty=empty, outputs=["loss", "dX"])
        np.testing.assert_array_equal(found.loss, mean if reduction == "mean" else np.zeros((0,) * found.loss.ndim))
        linear = run_any("LinearCrossEntropy", X, W, labels, reduction=reduction, empty=empty, outputs=["loss", "dW"])
        np.testing.assert_array_equal(linear.loss, found.loss)
        np.testing.assert_array_equal(linear.dW, 0)
    if reduction == "mean":
        assert gradkern.run("SoftmaxCrossEntropyLoss", X, labels).output == 0


def test_an_ignored_label_may_be_a_class_or_none_and_its_row_is_not_read_as_one() -> None:
    X, weights = np.random.default_rng(0).standard_normal((4, 5)).astype(f), np.arange(1, 6).astype(f)
    for ignored in (2, -1, 1 << 40):
        labels = np.array([0, ignored, 4, 2 if ignored != 2 else 3])
        found = gradkern.run("CrossEntropy", X, labels, weights, ignore_index=ignored)
        expected = reference("CrossEntropy", {"X": X, "labels": labels, "weight": weights}, {"ignore_index": ignored})
        assert_close("CrossEntropy", "dX", found.dX, expected["dX"])
        np.testing.assert_array_equal(found.dX[1], 0)


@pytest.mark.parametrize("operator", ["SoftmaxCrossEntropyLoss", "CrossEntropy", "SparseSoftmaxCrossEntropy"])
def test_a_label_that_is_no_class_is_refused_by_its_value_and_row(operator: Any) -> None:
    name = "label" if operator.startswith("Sparse") else "labels"
    found = message(DataError, run_any, operator, np.ones((3, 5), f), np.array([4, 5, -1]))
    but = ", or ignore_index -100" if operator == "CrossEntropy" else ""
    assert found == (
        f"{operator}: input {name} has 2 labels that are no class, the first 5 in row 1; expected 0 to 4{but}"
    )


def test_infinite_logits() -> None:
    """-inf has no probability; a row of nothing else is NaN, as one with +inf is. Smoothing counts every class."""
    X = np.array([[0, 1, -np.inf], [-np.inf] * 3, [0, np.inf, 1], [np.nan, 0, 1]], f)
    labels = np.zeros(4, np.int64)
    found = run_any("CrossEntropy", X, labels, reduction="none", outputs=EVERY)
    assert np.isfinite(found.loss[0])
    assert found.dX[0, 2] == 0
    assert np.isnan(found.dX[1:]).all()
    assert np.isnan(found.loss[1:]).all()
    assert np.isfinite(found.entropy[0])
    assert gradkern.run("CrossEntropy", X[:1], labels[:1], label_smoothing=0.1).loss == np.inf
    assert gradkern.run("CrossEntropy", X[:1], np.array([2])).loss == np.inf


def test_logits_far_from_zero_keep_their_digits() -> None:
    given = problem((4, 100))
    moved = {**given, "X": (np.round(given["X"] * 64) / 64 + 4096).astype(f)}
    near = {**given, "X": moved["X"] - 4096}
    found = (run_any("CrossEntropy", **each, outputs=EVERY) for each in (moved, near))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("operator", ["CrossEntropy", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (3, 1, 0, 2), (2, 3, 0, 1)])
def test_any_order_of_memory_is_taken_as_it_is(operator: Any, axes: tuple[int, ...]) -> None:
    given = problem((3, 5, 4, 6), ignored=None, weighted=False)
    X, labels = given.values()
    usual = run_any(operator, X, labels, reduction="none")[:2]
    stored = np.ascontiguousarray(X.transpose(axes)).transpose(np.argsort(axes))
    plan = gradkern.prepare(operator, stored, labels, reduction="none")
    for one, other in zip(plan(stored, labels)[:2], usual, strict=True):
        # what is near 0 is a difference of numbers of up to 10, each rounded after sums in another order
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)
    in_place = run_any("CrossEntropy", stored, labels, reduction="none", out={"dX": stored})
    assert in_place.dX is stored
    np.testing.assert_allclose(stored, run_any("CrossEntropy", X, labels, reduction="none").dX, rtol=2e-6, atol=1e-7)


def test_a_padded_vocabulary_is_a_view() -> None:
    padded = np.random.default_rng(0).standard_normal((4, 104)).astype(f)
    labels = np.arange(4)
    kept = padded[:, 101:].copy()
    expected = gradkern.run("CrossEntropy", padded[:, :101].copy(), labels).dX
    view = padded[:, :101]
    gradkern.run("CrossEntropy", view, labels, out={"dX": view})
    np.testing.assert_array_equal(view, expected)
    np.testing.assert_array_equal(padded[:, 101:], kept)


def test_the_same_call_a_hundred_times() -> None:
    given = problem((64, 4099), b)
    first = run_any("CrossEntropy", **given)
    for _ in range(100):
        again = run_any("CrossEntropy", **given)
        assert again.loss == first.loss
        np.testing.assert_array_equal(again.dX.view(np.uint16), first.dX.view(np.uint16))


def test_labels_and_probabilities_stand_for_one_another() -> None:
    X, labels = np.ones((2, 3), f), np.zeros(2, np.int64)
    wanted = "CrossEntropy: input labels and input probabilities stand for one another; expected one, came "
    assert message(ArgumentError, run_any, "CrossEntropy", X) == wanted + "neither"
    found = message(ArgumentError, run_any, "CrossEntropy", X, labels, probabilities=X)
    assert found == wanted + "labels and probabilities"
    found = message(AttributeValueError, run_any, "CrossEntropy", X, labels, label_smoothing=1.5)
    assert found == "CrossEntropy: attribute label_smoothing is 1.5; expected 0 to 1"


@pytest.mark.torch
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [f, d])
def test_it_is_pytorchs(dtype: str, reduction: str) -> None:
    import torch
    from torch.nn import functional

    for smoothing, weighted, dense in product((0.0, 0.2), (False, True), (False, True)):
        given = problem((6, 11, 3), dtype, ignored=3)
        arguments: dict[str, Any] = {name: torch.from_numpy(each) for name, each in given.items()}
        target = torch.from_numpy(probabilities((6, 11, 3), dtype)) if dense else arguments["labels"]
        weight = arguments["weight"] if weighted else None
        X = arguments["X"].requires_grad_()
        theirs = functional.cross_entropy(
            X, target, weight, ignore_index=3 if not dense else -100, reduction=reduction, label_smoothing=smoothing
        )
        (dX,) = torch.autograd.grad(theirs.sum(), X)
        ours = run_any(
            "CrossEntropy", X.detach(), None if dense else target, weight, target if dense else None,
            ignore_index=3, reduction=reduction, label_smoothing=smoothing, empty="nan",
        )  # fmt: skip
        tolerance: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12} if dtype == d else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(ours.loss, theirs.detach(), **tolerance)
        torch.testing.assert_close(ours.dX, dX, **tolerance)


def test_a_loss_that_its_type_cannot_hold_is_infinite_without_a_warning() -> None:
    """Warnings are errors here."""
    h = np.array([[0, 60000, -60000]], np.float16)
    ones, label = np.ones((1, 3), np.float16), np.array([2])
    for found in (
        gradkern.run("SoftmaxCrossEntropyLoss", h, label).output,
        gradkern.run("SparseSoftmaxCrossEntropy", h, label).Y,
        gradkern.run("SoftmaxCrossEntropy", h, ones).Y,
        gradkern.run("CrossEntropy", np.array([[0, 1e30]], np.float32), np.array([0]), z_loss=1.0).loss,
        gradkern.run("LinearCrossEntropy", h, h, np.array([0]), z_loss=1.0, outputs=["loss"]).loss,
    ):
        assert not np.isfinite(found)


@pytest.mark.parametrize("classes", [128256, 151936, 152064])
def test_parts_of_large_vocabularies_have_4096_rows_by_default(classes: int) -> None:
    """Their products fill the multiprocessors: 32 x 8 tiles of 128 x 256 are 1.9 of an H200, 26 x 8 are 1.6."""
    most = operators()["LinearCrossEntropy"].attributes["logits_bytes"].default
    assert isinstance(most, int)
    assert chunks(16384, 2 * classes, most) == [(begin, begin + 4096) for begin in range(0, 16384, 4096)]
