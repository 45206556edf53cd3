"""Plans of cross entropy with all their kernels under the CUDA simulator, in memory that shows every stray access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.guarded import Guarded
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.simulate_losses import Launch, kernel_of
from helpers.tolerance import assert_close, assert_elements_close

from gradkern.call import Call
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.kernels.rows import plan as rows_plan
from gradkern.kernels.rows.config import RowsConfig, configs
from gradkern.kernels.rows.problem import RowsProblem
from gradkern.ops.cross_entropy.cuda import plan as loss_plan
from gradkern.policy import Policy

b, h, f, d = "bfloat16", "float16", "float32", "float64"


@pytest.fixture(autouse=True)
def plans_in_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    counter, buffer = np.zeros(64, np.uint32), Guarded((1 << 16,), np.uint8)
    counter[0] = 1 << 31  # as an odd number of other launches' barriers leaves it
    for module in (rows_plan, loss_plan):
        monkeypatch.setattr(module, "kernel_of", kernel_of)
        monkeypatch.setattr(module, "Launch", Launch)
    monkeypatch.setattr(loss_plan, "device_of", lambda _call: Device(0, (9, 0), 132, 232448))
    monkeypatch.setattr(launches_plan, "scratch", lambda *_: (counter.ctypes.data, buffer.address))
    yield
    buffer.check()
    assert counter[0] == 1 << 31
    assert not counter[1:].any()


def run(
    operator: str,
    inputs: dict[str, np.ndarray],
    outputs: dict[str, tuple[tuple[int, ...], str]],
    how: dict[str, Any] | None = None,
    in_place: tuple[str, str] | None = None,
    scalars: dict[str, int] | None = None,
    **attributes: Any,
) -> dict[str, np.ndarray]:
    """The outputs of one call. how: how the arrays with classes are stored."""
    large = next(each for name, each in inputs.items() if name in ("X", "scores", "logits", "log_prob")).shape

    def stored(shape: tuple[int, ...]) -> dict[str, Any]:
        return (how or {}) if shape == large else {}

    def flat(each: np.ndarray) -> np.ndarray:
        return each.reshape(each.shape or (1,))

    held = {name: hold(flat(each), **stored(each.shape)) for name, each in inputs.items()}
    for name, each in held.items():
        if in_place is None or name != in_place[0]:
            each.memory.freeze()
    made = {name: Held(shape or (1,), dtype, **stored(shape)) for name, (shape, dtype) in outputs.items()}
    if in_place is not None:
        made[in_place[1]] = held[in_place[0]]
    shapes = {name: each.shape for name, each in inputs.items()} | {name: each[0] for name, each in outputs.items()}
    tensors = {name: each.tensor._replace(shape=shapes[name]) for name, each in {**held, **made}.items()}
    tensors = {name: each if each.shape else each._replace(strides=()) for name, each in tensors.items()}
    by_rows = operator.startswith("Sparse") or operator in ("SoftmaxCrossEntropy", "SoftmaxCrossEntropyGrad")
    axes = {"rows": large[:-1], "C": large[-1]} if by_rows else {"N": large[0], "C": large[1], "spatial": large[2:]}
    defaults = {"label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0, "empty": "zero", "ignore_index": -100}
    given = {"reduction": "mean", **(defaults if operator == "CrossEntropy" else {}), **attributes}
    call = Call(
        operator, {name: tensors[name] for name in inputs}, {name: tensors[name] for name in outputs}, given, axes,
        frozenset(), "cuda:0", Policy(), dict.fromkeys(scalars or {}, "int64"),
    )  # fmt: skip
    plan: Any = loss_plan.plan(call)
    plan = replace(plan, copied=None)
    plan(
        (*(held[name].address for name in inputs), *(scalars or {}).values()),
        tuple(made[name].address for name in outputs),
        0,
    )
    for each in (*held.values(), *made.values()):
        each.memory.check()
    return {name: np.array(made[name].array).reshape(shapes[name]) for name in outputs}


def problem(shape: tuple[int, ...], dtype: str, ignored: int = -100) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    rows = (shape[0], *shape[2:])
    labels = random.integers(0, shape[1], rows)
    labels.flat[1::3] = ignored
    return {"X": (3 * random.standard_normal(shape)).astype(dtype), "labels": labels}


def compare(name: str, got: np.ndarray, expected: np.ndarray) -> None:
    """A gradient of few rows has few elements that count, the labels': their roundings do not average out."""
    if name == "dX" and got.dtype in (b, h):
        assert_elements_close("CrossEntropy", name, got, expected)
    else:
        assert_close("CrossEntropy", name, got, expected)


def check(given: dict[str, np.ndarray], names: Sequence[str] = ("loss", "dX"), **options: Any) -> None:
    X = given["X"]
    U = d if X.dtype == np.float64 else f
    rows = (X.shape[0], *X.shape[2:])
    shapes = {"loss": rows if options.get("reduction") == "none" else (), "dX": X.shape}
    outputs = {name: (shapes.get(name, rows), X.dtype.name if name == "dX" else U) for name in names}
    attributes = {name: each for name, each in options.items() if name not in ("how", "in_place")}
    expected = reference("CrossEntropy", given, attributes)
    for name, got in run("CrossEntropy", given, outputs, **options).items():
        compare(name, got, expected[name])


@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("shape", [(5, 40), (4, 261), (3, 7, 5), (3, 5, 16), (7, 1), (6, 2)])
def test_every_type_and_layout(shape: tuple[int, ...], dtype: str) -> None:
    check(problem(shape, dtype))


@pytest.mark.parametrize(("shape", "dtype"), [((2, 3, 1025), b), ((1, 17, 520), b), ((2, 3, 516), h)])
def test_few_classes_along_a_long_axis(shape: tuple[int, ...], dtype: str) -> None:
    """One or two threads have a row; the last block has vectors of the axis and others beyond it."""
    given = problem(shape, dtype)
    check(given, names=("loss", "dX", "row_loss", "entropy"), in_place=("X", "dX"), z_loss=0.01)
    given["X"][0, 1, 1] = np.nan  # of a row that does not count
    check(given, in_place=("X", "dX"))


@pytest.mark.parametrize("columns", [2056, 9003])
def test_rows_of_a_block_and_of_a_cluster(columns: int) -> None:
    check(problem((3, columns), b))


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize(("columns", "dtype"), [(1000, b), (1003, h), (520, f)])
def test_rows_that_wait_in_shared_memory(
    columns: int, dtype: str, cluster: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def staged(problem: RowsProblem, capability: tuple[int, int]) -> Iterator[RowsConfig]:
        vectors = -(-problem.vectors // (32 * cluster))
        first = next(configs(problem, capability))
        yield replace(first, lanes=32, teams=1, vectors=vectors, cluster=cluster, held=True, staged=True)

    monkeypatch.setattr(loss_plan, "configs", staged)
    check(problem((3, columns), dtype), in_place=("X", "dX"))
    given = problem((3, columns), dtype)
    del given["labels"]
    check({**given, "probabilities": (np.abs(given["X"]) / columns).astype(dtype)})


@pytest.mark.parametrize(
    ("columns", "dtype", "lanes", "cluster"), [(1003, b, 64, 1), (1040, h, 32, 2), (1021, b, 32, 1)]
)
def test_wide_rows_of_16_bits(
    columns: int, dtype: str, lanes: int, cluster: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels at the ends of rows, which begin at every place of a line, and whatever is in rows that do not count."""

    def staged(problem: RowsProblem, _capability: tuple[int, int]) -> Iterator[RowsConfig]:
        vectors = -(-problem.vectors // (lanes * cluster))
        yield RowsConfig(8, lanes, 1, vectors, cluster, shifted=problem.shifted, staged=True)

    monkeypatch.setattr(loss_plan, "configs", staged)
    given = problem((9, columns), dtype)
    X, labels = given["X"], given["labels"]
    labels[:] = 0, -100, columns - 1, 7, 8, 950, 3, columns - 2, 950
    X[1, 5], X[3, 7] = np.nan, 60
    for options in (
        {"names": ("dX", "row_loss", "entropy"), "reduction": "sum", "z_loss": 0.01},
        {"reduction": "none"},
        {"softcap": 64.0, "capped": 1},
    ):
        check(given, in_place=("X", "dX"), **options)
    X[5, 3:900], X[6, 9], X[8] = -np.inf, np.nan, -np.inf
    made = {"dX": (X.shape, dtype), "entropy": ((9,), f)}
    found = run("CrossEntropy", given, made, in_place=("X", "dX"))
    np.testing.assert_array_equal(np.isnan(found["dX"].astype(d)).all(1), np.isin(np.arange(9), (6, 8)))
    np.testing.assert_array_equal(np.isnan(found["entropy"]), np.isin(np.arange(9), (1, 6, 8)))
    assert not found["dX"][1].any()
    assert not found["dX"][5, 3:900].any()


OPTIONS: list[dict[str, Any]] = [
    {"reduction": "sum", "label_smoothing": 0.1},
    {"reduction": "none", "z_loss": 0.01},
    {"softcap": 3.0, "label_smoothing": 0.3, "z_loss": 0.1},
    {"softcap": 12.0, "capped": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(5, 40), (2, 7, 5)])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_options(shape: tuple[int, ...], options: dict[str, Any], dense: bool, weighted: bool) -> None:
    given = problem(shape, f)
    random = np.random.default_rng(1)
    if weighted:
        given["weight"] = random.uniform(0.5, 2, shape[1]).astype(f)
    if dense:
        del given["labels"]
        given["probabilities"] = random.uniform(0, 1, shape).astype(f)
    rows = (shape[0], *shape[2:])
    given["dY"] = random.standard_normal(rows if options.get("reduction") == "none" else ()).astype(f)
    check(given, **options)


def test_in_place_and_strides() -> None:
    check(problem((4, 41), b), in_place=("X", "dX"))
    check(problem((4, 72), b), in_place=("X", "dX"), how={"offset": 3, "spread": 5})
    check(problem((2, 24, 3, 4), b), how={"axes": (0, 2, 3, 1)})


def test_losses_of_rows_and_entropies() -> None:
    check(problem((5, 33), f), names=("loss", "dX", "row_loss", "entropy"))
    check(problem((5, 33), f), names=("entropy",))
    check(problem((5, 33), f), names=("loss",))
    check(problem((5, 33), f), names=("dX",))
    check(problem((2, 7, 5), f), names=("row_loss", "entropy"), reduction="none")


@pytest.mark.parametrize("shape", [(3, 1000), (3, 1003), (3, 5, 4)])
@pytest.mark.parametrize("dtype", [b, f])
def test_masked_classes_and_whatever_is_in_rows_that_do_not_count(dtype: str, shape: tuple[int, ...]) -> None:
    given = problem(shape, dtype)
    given["labels"][:] = 2
    given["labels"][1] = -100
    X = given["X"]
    X[0, [1, 4]], X[1, :3], X[2, 0] = -np.inf, np.nan, 300
    made = {"dX": (shape, dtype), "row_loss": (given["labels"].shape, f), "entropy": (given["labels"].shape, f)}
    found = run("CrossEntropy", given, made, in_place=("X", "dX"), reduction="sum")
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.exp(X.astype(d) - X.astype(d).max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        entropy = -np.where(p > 0, p * np.log(p), 0).sum(1)
        loss = -np.log(p[:, 2])
    loss[1], p[:, 2], p[1] = 0, p[:, 2] - 1, 0
    assert not found["dX"][1].any()
    compare("dX", found["dX"], p)
    compare("row_loss", found["row_loss"], loss)
    compare("entropy", found["entropy"][[0, 2]], entropy[[0, 2]])


@pytest.mark.parametrize("empty", ["zero", "nan"])
def test_where_no_label_counts(empty: str) -> None:
    given = problem((4, 9), f)
    given["labels"][:] = -100
    check(given, empty=empty)
    check({**given, "weight": np.zeros(9, f), "labels": np.array([1, 2, -100, 3])})


def test_a_label_that_is_no_class_is_nan_in_its_row() -> None:
    given = problem((4, 9), f)
    given["labels"][:] = 0, 9, -1, 8
    found = run("CrossEntropy", given, {"loss": ((4,), f), "dX": ((4, 9), f)}, reduction="none")
    expected = reference("CrossEntropy", {**given, "labels": np.array([0, 0, 0, 8])}, {"reduction": "none"})
    bad = np.array([False, True, True, False])
    np.testing.assert_array_equal(np.isnan(found["loss"]), bad)
    assert np.isnan(found["dX"][bad]).all()
    np.testing.assert_allclose(found["dX"][~bad], expected["dX"][~bad], rtol=1e-5)


def test_the_true_class_keeps_its_digits() -> None:
    for missing in (0.5, 1e-2, 1e-4, 1e-6):
        X = np.zeros((1, 1000), h)
        X[0, 7] = np.log((1 - missing) / missing * 999)
        wide = np.exp(X.astype(d) - X.astype(d).max())
        exact = -(wide.sum() - 1) / wide.sum()
        found = run("CrossEntropy", {"X": X, "labels": np.array([7])}, {"loss": ((), f), "dX": (X.shape, h)})
        assert abs(float(found["loss"]) / -np.log1p(exact) - 1) < 3e-6
        assert abs(float(found["dX"][0, 7]) - exact) <= -exact * 2**-11 * 1.01 + 2**-25


LOSSES = ("SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossInternal")


@pytest.mark.parametrize("operator", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("shape", "dtype"), [*product([(4, 41), (2, 7, 5)], [b, f])])
def test_the_operators_of_onnx(operator: str, reduction: str, shape: tuple[int, ...], dtype: str) -> None:
    random = np.random.default_rng(0)
    rows = (shape[0], *shape[2:])
    ignored = 3
    given = {
        "scores": random.standard_normal(shape).astype(dtype),
        "labels": random.integers(0, shape[1], rows).astype(np.int32),
        "weights": random.uniform(0.5, 2, shape[1]).astype(dtype),
    }
    out = rows if reduction == "none" else ()
    internal: dict[str, Any] = (
        {"scalars": {"ignore_index": ignored}} if "Internal" in operator else {"ignore_index": ignored}
    )
    expected = reference(operator, given, {"reduction": reduction, "ignore_index": ignored})
    found = run(operator, given, {"output": (out, dtype), "log_prob": (shape, dtype)}, reduction=reduction, **internal)
    for name, got in found.items():
        assert_close(operator, name, got, expected[name])
    log_prob = expected["log_prob"].astype(dtype)
    inputs = {"dY": random.standard_normal(out).astype(dtype), "log_prob": log_prob, "label": given["labels"]}
    inputs["weight"] = given["weights"]
    if "Internal" in operator:
        inputs["bias"] = random.standard_normal(shape).astype(dtype)
    expected = reference(f"{operator}Grad", inputs, {"reduction": reduction, "ignore_index": ignored})
    for in_place in (None, ("log_prob", "d_logits")):
        got = run(
            f"{operator}Grad", inputs, {"d_logits": (shape, dtype)}, reduction=reduction, in_place=in_place, **internal
        )["d_logits"]  # fmt: skip
        assert_close(f"{operator}Grad", "d_logits", got, expected["d_logits"])


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_older_operators(reduction: str, dense: bool) -> None:
    random = np.random.default_rng(0)
    shape = (2, 3, 41)
    operator = "SoftmaxCrossEntropy" if dense else "SparseSoftmaxCrossEntropy"
    more: dict[str, np.ndarray] = {"label": random.integers(0, 41, (2, 3))}
    if dense:
        more = {"label": random.uniform(0, 1, shape).astype(f)}
    else:
        more["weight"] = random.uniform(0.5, 2, (2, 3)).astype(f)
    given = {"logits": random.standard_normal(shape).astype(f), **more}
    out = (2, 3) if reduction == "none" else ()
    expected = reference(operator, given, {"reduction": reduction})
    for name, got in run(operator, given, {"Y": (out, f), "log_prob": (shape, f)}, reduction=reduction).items():
        assert_close(operator, name, got, expected[name])
    inputs = {"dY": random.standard_normal(out).astype(f), "log_prob": expected["log_prob"].astype(f), **more}
    got = run(f"{operator}Grad", inputs, {"d_logits": (shape, f)}, reduction=reduction)["d_logits"]
    expected = reference(f"{operator}Grad", inputs, {"reduction": reduction})
    assert_close(f"{operator}Grad", "d_logits", got, expected["d_logits"])


def test_sums_of_many_blocks_are_of_all_rows() -> None:
    rows = 8 * 512 + 5
    check(problem((rows, 1), f), names=("loss",), label_smoothing=0.0, z_loss=0.5)
