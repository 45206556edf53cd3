"""Cross entropy on a GPU against float64: widths, options, types, memory orders, edges, graphs and the same bits."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close
from helpers.torch_on_gpu import back, no_synchronization, there

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]

b, h, f, d = "bfloat16", "float16", "float32", "float64"
WIDTHS = [1, 2, 3, 10, 64, 100, 129, 1000, 1024, 4096, 4097, 32000, 50257, 128256, 151936, 262144, 300001]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum", "label_smoothing": 0.1},
    {"reduction": "none", "z_loss": 0.01},
    {"softcap": 3.0, "label_smoothing": 0.3, "z_loss": 0.1},
    {"softcap": 12.0, "capped": 1},
]


def problem(shape: tuple[int, ...], dtype: str, weighted: bool = False, dense: bool = False) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    rows = (shape[0], *shape[2:])
    labels = random.integers(0, shape[1], rows)
    labels.flat[1::3] = -100
    given = {"X": (3 * random.standard_normal(shape, dtype=np.float32)).astype(dtype), "labels": labels}
    if weighted:
        given["weight"] = random.uniform(0.5, 2, shape[1]).astype(d if dtype == d else f)
    if dense:
        del given["labels"]
        given["probabilities"] = random.uniform(0, 2 / shape[1], shape).astype(dtype)
    return given


def compare(name: str, got: np.ndarray, expected: np.ndarray) -> None:
    """A gradient of few rows has few elements that count, the labels': their roundings do not average out."""
    if name == "dX" and got.dtype in (b, h):
        assert_elements_close("CrossEntropy", name, got, expected)
    else:
        assert_close("CrossEntropy", name, got, expected)


def check(given: dict[str, np.ndarray], outputs: Any = ("loss", "dX"), in_place: bool = False, **options: Any) -> None:
    tensors: dict[str, Any] = {name: there(each) for name, each in given.items()}
    out = {"dX": tensors["X"]} if in_place else None
    found = run_any("CrossEntropy", **tensors, **options, outputs=list(outputs), out=out)
    expected = reference("CrossEntropy", given, options)
    for name in outputs:
        compare(name, back(getattr(found, name)), expected[name])


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_every_type_and_width(dtype: str, columns: int) -> None:
    given = problem((max(3, min(3001, 200_000 // columns)), columns), dtype)
    check(given, in_place=columns % 2 == 0)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(40, 1000), (7, 50257), (3, 21, 40, 41), (2, 1000, 65)])
@pytest.mark.parametrize(("weighted", "dense"), [*product([False, True], [False, True])])
def test_options(weighted: bool, dense: bool, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    given = problem(shape, f, weighted, dense)
    rows = (shape[0], *shape[2:]) if options.get("reduction") == "none" else ()
    given["dY"] = np.asarray(np.random.default_rng(1).standard_normal(rows)).astype(f)
    check(given, **options)


def test_losses_of_rows_and_entropies() -> None:
    every = ("loss", "dX", "row_loss", "entropy")
    for columns, dtype in ((100, f), (5000, b), (50257, f), (128256, b)):
        check(problem((9, columns), dtype), every)
        check(problem((9, columns), dtype), every, reduction="none")
        check(problem((9, columns), dtype), ("entropy",))


@pytest.mark.parametrize("columns", [1000, 50257, 128256])
@pytest.mark.parametrize("dtype", [b, h, f])
def test_masked_classes_and_whatever_is_in_rows_that_do_not_count(dtype: str, columns: int) -> None:
    given = problem((4, columns), dtype)
    X, labels = given["X"], given["labels"]
    labels[:] = 7, -100, columns - 1, 0
    X[0, 9::2], X[1, 3:900], X[2, : columns - 2], X[3, 0] = -np.inf, np.nan, -np.inf, 300
    found = run_any("CrossEntropy", there(X), there(labels), outputs=["dX", "row_loss", "entropy"], reduction="sum")
    assert not found.dX[1].any()
    assert found.row_loss[1] == 0
    counted = [0, 2, 3]
    difference = X[counted].astype(d) - X[counted].astype(d).max(1, keepdims=True)
    total = np.exp(difference).sum(1, keepdims=True)
    p = np.exp(difference) / total
    log = np.where(p > 0, difference, 0) - np.log(total)
    rows = np.arange(3), labels[counted]
    p_less_one = p.copy()
    p_less_one[rows] -= 1
    compare("dX", back(found.dX)[counted], p_less_one)
    compare("row_loss", back(found.row_loss)[counted], -log[rows])
    compare("entropy", back(found.entropy)[counted], -(p * log).sum(1))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(2, 21, 64, 64), (3, 5, 7, 9), (64, 3, 31, 31)])
def test_channels_in_either_order(shape: tuple[int, ...], last: bool) -> None:
    given = problem(shape, b)
    expected = reference("CrossEntropy", given, {})
    found = run_any("CrossEntropy", there(given["X"], last), there(given["labels"]), outputs=["loss", "dX"])
    for name in ("loss", "dX"):
        compare(name, back(getattr(found, name)), expected[name])


@pytest.mark.parametrize("dtype", [b, f])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_operators_of_onnx(reduction: str, dtype: str) -> None:
    random = np.random.default_rng(0)
    for shape in ((9, 50257), (4, 21, 30, 31)):
        rows = (shape[0], *shape[2:])
        given = {
            "scores": random.standard_normal(shape).astype(dtype),
            "labels": random.integers(0, shape[1], rows).astype(np.int32),
            "weights": random.uniform(0.5, 2, shape[1]).astype(dtype),
        }
        options: dict[str, Any] = {"reduction": reduction, "ignore_index": 3}
        expected = reference("SoftmaxCrossEntropyLossInternal", given, options)
        tensors: dict[str, Any] = {name: there(each) for name, each in given.items()}
        for operator in ("SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossInternal"):
            found = run_any(operator, **tensors, **options)
            for name in ("output", "log_prob"):
                assert_close(operator, name, back(getattr(found, name)), expected[name])
            inputs = {
                "dY": np.asarray(random.standard_normal(rows if reduction == "none" else ())).astype(dtype),
                "log_prob": expected["log_prob"].astype(dtype),
                "label": given["labels"],
                "weight": given["weights"],
            }
            if "Internal" in operator:
                inputs["bias"] = random.standard_normal(shape).astype(dtype)
            got = run_any(f"{operator}Grad", **{name: there(each) for name, each in inputs.items()}, **options).d_logits
            exact = reference(f"{operator}Grad", inputs, options)["d_logits"]
            assert_close(f"{operator}Grad", "d_logits", back(got), exact)


def test_where_no_label_counts_and_a_label_that_is_no_class() -> None:
    import torch

    X, labels = torch.randn(5, 1000, device="cuda"), torch.full((5,), -100, device="cuda")
    for empty, loss in (("zero", 0.0), ("nan", float("nan"))):
        found = run_any("CrossEntropy", X, labels, empty=empty)
        np.testing.assert_equal(float(found.loss), loss)
        assert not found.dX.any()
    labels[2], labels[3] = 1000, -7
    found = run_any("CrossEntropy", X, labels, reduction="none")
    assert found.loss.isnan().tolist() == [False, False, True, True, False]
    assert found.dX.isnan().all(1).tolist() == [False, False, True, True, False]


@pytest.mark.parametrize("dtype", [b, h])
def test_the_true_class_keeps_its_digits(dtype: str) -> None:
    for columns, missing in product((1000, 50257), (0.5, 0.1, 1e-2, 1e-3, 1e-5, 1e-7)):
        X = np.zeros((1, columns))
        X[0, 7] = np.log((1 - missing) / missing * (columns - 1))
        X = X.astype(dtype)
        wide = np.exp(X.astype(d) - X.astype(d).max())
        exact = -(wide.sum() - 1) / wide.sum()
        found = run_any("CrossEntropy", there(X), there(np.array([7])))
        assert abs(float(found.loss) / -np.log1p(exact) - 1) < 5e-6
        step = {b: 2.0**-8, h: 2.0**-11}[dtype]
        assert abs(float(found.dX[0, 7]) - exact) <= -exact * step * 1.01 + (2.0**-25 if dtype == h else 0)


def test_sums_of_many_blocks_between_barriers_of_a_grid() -> None:
    """A bias gradient's launch leaves a bit in the counter, after an odd number of them as after an even one."""
    dY, X, B = (np.ones(shape, f) for shape in ((4096, 768), (4096, 768), (768,)))
    slope = reference("BiasGeluGrad_dX", {"dY": dY, "X": X, "B": B}, {})["dB"]
    for rows in (5000, 9001):
        check(problem((rows, 10), b))
        found = run_any("BiasGeluGrad_dX", dY=there(dY), X=there(X), B=there(B), outputs=["dX", "dB"])
        assert_close("BiasGeluGrad_dX", "dB", back(found.dB), slope)
    check(problem((5000, 10), b))


def test_in_a_graph_without_waiting_and_the_same_bits() -> None:
    import torch

    X = torch.randn(4096, 50257, device="cuda", dtype=torch.bfloat16)
    labels, dX = torch.randint(0, 50257, (4096,), device="cuda"), torch.empty_like(X)
    first = run_any("CrossEntropy", X, labels, out={"dX": dX})
    expected = dX.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = run_any("CrossEntropy", X, labels, out={"dX": dX})
    with no_synchronization():
        for _ in range(100):
            graph.replay()
    assert torch.equal(again.loss, first.loss)
    assert torch.equal(dX, expected)


def test_more_elements_than_32_bits_count() -> None:
    import torch

    rows, columns = 33500, 128256
    if torch.cuda.mem_get_info()[0] < rows * columns * 2.2:
        pytest.skip("needs 9 GB")
    X = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(0, columns, (rows,), device="cuda")
    part = [0, 16745, rows - 1]
    wide = X[part].double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(wide, labels[part], reduction="sum") / rows
    loss.backward()
    run_any("CrossEntropy", X, labels, out={"dX": X})
    assert wide.grad is not None
    error = (X[part].double() - wide.grad).norm() / wide.grad.norm()
    assert float(error) < 2.2e-3


@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("sizes", [(300, 64, 1000), (1100, 32, 5003), (130, 24, 33)])
def test_the_linear_layer_too(sizes: tuple[int, int, int], dtype: str) -> None:
    rows, features, classes = sizes
    random = np.random.default_rng(0)
    labels = random.integers(0, classes, rows)
    labels[1::3] = -100
    given = {
        "X": random.standard_normal((rows, features)).astype(dtype),
        "W": (random.standard_normal((classes, features)) / 4).astype(dtype),
        "labels": labels,
        "B": random.standard_normal(classes).astype(dtype),
        "weight": random.uniform(0.5, 2, classes).astype(d if dtype == d else f),
    }
    for options in (each for each in OPTIONS if "capped" not in each):
        rows_or_one = (rows,) if options.get("reduction") == "none" else ()
        dY = np.asarray(random.standard_normal(rows_or_one)).astype(d if dtype == d else f)
        inputs = {**given, "dY": dY}
        tensors: dict[str, Any] = {name: there(each) for name, each in inputs.items()}
        expected = reference("LinearCrossEntropy", inputs, options)
        for logits_bytes in (0, 1 << 30):
            found = run_any("LinearCrossEntropy", **tensors, **options, logits_bytes=logits_bytes)
            for name, exact in expected.items():
                got = back(getattr(found, name)).astype(d)
                step = {b: 2.0**-8, h: 2.0**-11, f: 1e-5, d: 1e-12}[dtype]
                assert np.linalg.norm(got - exact) <= step * np.linalg.norm(exact), (name, options, logits_bytes)


def test_pytorchs_functions_with_our_gradients() -> None:
    import torch
    from torch.nn import functional

    from gradkern.torch import cross_entropy, linear_cross_entropy

    x = torch.randn(64, 48, device="cuda", requires_grad=True)
    w = torch.randn(1003, 48, device="cuda", requires_grad=True)
    labels = torch.randint(0, 1003, (64,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        z = functional.linear(x, w)
        losses = cross_entropy(z, labels), linear_cross_entropy(x, w, labels), functional.cross_entropy(z, labels)
    exact = functional.cross_entropy(functional.linear(x.double(), w.double()), labels)
    gradients = [torch.autograd.grad(each, (x, w), retain_graph=True) for each in (*losses, exact)]
    for loss, found in zip(losses, gradients, strict=False):
        assert loss.dtype is torch.float32
        torch.testing.assert_close(loss.double(), exact, rtol=1e-2, atol=1e-2)
        for one, two in zip(found, gradients[-1], strict=True):
            assert float((one - two).norm() / two.norm()) < 1e-2


def test_pytorchs_function_takes_logits_labels_and_weights_from_any_place_in_memory() -> None:
    import torch
    from torch.nn import functional

    from gradkern.torch import cross_entropy

    def random(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device="cuda")

    places = [
        random(2, 9, 33)[:, :-1].transpose(1, 2),  # of a language model, whose labels are shifted
        random(8, 2, 33).permute(1, 2, 0),
        random(2, 33, 9, 9)[:, :, 1:, 1:],
        random(40, 66)[:, ::2],
        random(1, 33).expand(40, 33),
    ]
    weight = random(66)[::2].abs()
    for place in places:
        x, wide = place.detach().requires_grad_(), place.detach().double().requires_grad_()
        classes, shape = place.shape[1], (place.shape[0], *place.shape[2:])
        labels = torch.randint(0, classes, (*shape, 2), device="cuda")[..., 0]
        probabilities = torch.rand(place.shape, device="cuda").transpose(0, -1).contiguous().transpose(0, -1)
        for target in (labels, probabilities):
            given, weights = target.double() if target is probabilities else target, weight[:classes]
            exact = functional.cross_entropy(wide, given, weights.double())
            loss = cross_entropy(x, target, weights)
            torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)
            found, expected = (torch.autograd.grad(*each)[0] for each in ((loss, x), (exact, wide)))
            torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-7)
