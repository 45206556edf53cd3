"""Every operator of the element-wise block on a GPU against float64: types, orders of memory, rows apart, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import prepare_any, run_any
from helpers.examples import bits
from helpers.reference import reference
from helpers.terms import terms
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

import gradkern
from gradkern.contract.examples import complete
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

FAMILIES = ("dropout", "scaling", "finite", "gated")
OPERATORS = [name for name, each in gradkern.operators().items() if each.family in FAMILIES]


@pytest.mark.parametrize("name", [*OPERATORS, "SoftmaxDropoutGrad"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (1000, 1003), (300, 256), (2, 24, 5, 7)])
def test_every_type_and_order(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    operator = gradkern.operators()[name]
    sizes: dict[str, Any] = (
        {"rows": shape[:1], "columns": shape[1:]} if name.startswith("Softmax") else {"sizes": shape}
    )
    if name == "DivGrad":
        sizes |= {"a": shape, "b": shape[-1:]}
    required: dict[str, Any] = {key: 1 for key, each in operator.attributes.items() if each.required}
    required |= {"scale_2": -0.3} if name == "BatchScale" else {}
    example = complete(operator, Example(axes=sizes, attributes=required))
    row = next(each for each in operator.combinations if each[operator.data.type] == dtype)
    inputs = inputs_of(operator, row, example, np.random.default_rng(0))
    expected = reference(name, inputs, required)
    of_terms = terms(name, inputs, required) if name == "DivGrad" else {}
    every = [each.name for each in operator.outputs]
    for last in {False, len(shape) == 4}:
        tensors = {key: there(each, last and each.ndim == 4) for key, each in inputs.items()}
        found = run_any(name, **tensors, **required, outputs=every)._asdict()
        for key, each in found.items():
            assert_close(name, key, back(each), expected[key], of_terms.get(key))
        out = {target: tensors[source] for pair in operator.in_place[:1] for source, target in pair.items()}
        again = run_any(name, **tensors, **required, outputs=every, out=out)._asdict()
        for key, each in again.items():
            np.testing.assert_array_equal(bits(back(each)), bits(back(found[key])))


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in ("IsAllFinite", "ReduceAllL2")])
def test_rows_at_a_distance_are_read_where_they_are(name: str) -> None:
    operator = gradkern.operators()[name]
    more: dict[str, Any] = {"a": (64, 256), "b": (64, 256)} if name == "DivGrad" else {}
    required: dict[str, Any] = {key: 1 for key, each in operator.attributes.items() if each.required}
    example = complete(operator, Example(axes={"sizes": (64, 256), **more}, attributes=required))
    row = next(each for each in operator.combinations if each[operator.data.type] == "bfloat16")
    inputs = inputs_of(operator, row, example, np.random.default_rng(0))
    flat = {key: there(each) for key, each in inputs.items() if each.ndim < 2}
    large = {key: each for key, each in inputs.items() if each.ndim == 2}
    halves = {key: there(np.concatenate([each, each], 1))[:, :256] for key, each in large.items()}
    scattered = {key: there(np.repeat(each, 2, 1))[:, ::2] for key, each in large.items()}
    expected = reference(name, inputs, required)
    for apart, copied in ((halves, False), (scattered, True)):
        given = {key: apart.get(key, flat.get(key)) for key in inputs}
        plan = prepare_any(name, **given, **required)
        assert ("copies" in plan.kernel) == copied
        for key, each in plan(**given)._asdict().items():
            if each is not None:
                assert_close(name, key, back(each), expected[key])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("sizes", "a", "b"),
    [
        ((3000, 1024), (3000, 1024), (3000, 1)),
        ((3000, 1024), (3000, 1024), (1024,)),
        ((3000, 1024), (3000, 1024), ()),
        ((999, 77), (77,), (999, 77)),
        ((8, 64, 28, 28), (64, 1, 1), (8, 64, 28, 28)),
        ((64, 65, 24), (65, 1), (64, 1, 24)),
    ],
)
def test_both_gradients_of_a_quotient(dtype: str, sizes: Any, a: Any, b: Any) -> None:
    random = np.random.default_rng(0)
    dY, A, B = random.standard_normal(sizes), random.standard_normal(a), random.uniform(0.5, 2, b)
    inputs = {name: np.asarray(each).astype(dtype) for name, each in (("dY", dY), ("A", A), ("B", B))}
    expected, of_terms = reference("DivGrad", inputs), terms("DivGrad", inputs)
    tensors = {name: there(each) for name, each in inputs.items()}
    found = run_any("DivGrad", **tensors, outputs=["dA", "dB"])._asdict()
    for name, each in found.items():
        assert_close("DivGrad", name, back(each), expected[name], of_terms[name])
    for _ in range(20):
        for name, each in run_any("DivGrad", **tensors, outputs=["dA", "dB"])._asdict().items():
            np.testing.assert_array_equal(bits(back(each)), bits(back(found[name])))


def test_a_norm_of_many_arrays_and_products_of_each() -> None:
    random = np.random.default_rng(0)
    sizes = [(1000, 1003), (17,), (0, 3), (), *[(n + 1,) for n in range(70)]]
    X = {f"X_{n}" if n else "X": random.standard_normal(each).astype(np.float32) for n, each in enumerate(sizes)}
    tensors = [there(each) for each in X.values()]
    plan: Any = prepare_any("ReduceAllL2", *tensors)
    assert len(plan.plan.launches) == 4  # of 32 arrays each, without the empty one, and the sum
    norm = back(plan(*tensors).Y)
    assert_close("ReduceAllL2", "Y", norm, reference("ReduceAllL2", X)["Y"])
    assert {back(plan(*tensors).Y).tobytes() for _ in range(20)} == {norm.tobytes()}
    for fuse_outputs in (0, 1):
        given = {"to": "float16", "fuse_outputs": fuse_outputs}
        made: Any = prepare_any("MixedPrecisionScale", 8.0, *tensors, **given)
        assert len(made.plan.launches) == (4 if fuse_outputs else 3)  # of 32 arrays with vectors of one width
        expected = reference("MixedPrecisionScale", {"S": np.float32(8), **X}, {"fuse_outputs": fuse_outputs})
        for name, each in run_any("MixedPrecisionScale", 8.0, *tensors, **given)._asdict().items():
            assert_close("MixedPrecisionScale", "Y", back(each), expected[name])
