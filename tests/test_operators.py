"""Every operator, every type combination, every example of the registry, against float64 mathematics."""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.calls import run_any
from helpers.examples import GRADIENTS, OPERATORS, attributes_of, bits, cases, cases_with, every_output, rows, sample
from helpers.reference import FORMULAS, reference
from helpers.tolerance import assert_close, assert_elements_close

import gradkern
from gradkern.contract.schema import Example, Operator, axis_of, shape_of

ELEMENTWISE = {"X_grad", "dX", "OutputGradient", "Y", "output", "input_skip_bias_sum", "C"}
"""The outputs whose single elements have a bound too, where the operator is a norm or GELU."""
PRODUCTS = {"ConvGrad", "ConvTransposeGrad", "LinearCrossEntropy"}
"""Their dX is a matrix product. An element in which terms cancel is as far off as rounding of its terms, such as
the logits': it has no bound relative to the row's largest.
"""

every_case = pytest.mark.parametrize(("name", "operator", "row", "example"), list(cases()))
float32_cases = pytest.mark.parametrize(("name", "operator", "row", "example"), list(cases("float32")))


def test_every_operator_has_a_formula_and_examples_in_float32() -> None:
    """Without them the tests below would leave it out."""
    assert set(FORMULAS) == set(OPERATORS)
    for name, operator in OPERATORS.items():
        assert operator.examples, name
        floats = [{each for each in row.values() if "float" in each} for row in operator.combinations]
        assert any(each <= {"float32"} for each in floats), name


@every_case
def test_outputs_agree_with_float64_mathematics(name: str, operator: Operator, row: dict, example: Example) -> None:
    inputs = sample(operator, row, example)
    kept = {key: array.copy() for key, array in inputs.items()}
    result = run_any(name, **inputs, outputs=every_output(operator), **attributes_of(operator, row, example))
    expected = reference(name, inputs, example.attributes, row)
    for each in operator.outputs:
        got = getattr(result, each.name)
        assert got.dtype.name == row[each.type]
        assert_close(name, each.name, got, expected[each.name])
        if each.name in ELEMENTWISE and name not in PRODUCTS:
            assert_elements_close(name, each.name, got, expected[each.name])
    for key, array in inputs.items():
        np.testing.assert_array_equal(bits(array), bits(kept[key]), err_msg=f"input {key} was changed")


@pytest.mark.parametrize(("name", "operator", "row", "example", "output"), list(cases_with(every_output)))
def test_each_output_can_be_had_alone(name: str, operator: Operator, row: dict, example: Example, output: str) -> None:
    inputs = sample(operator, row, example)
    expected = reference(name, inputs, example.attributes, row)
    alone = run_any(name, **inputs, outputs=[output], **attributes_of(operator, row, example))
    assert [key for key in alone._fields if getattr(alone, key) is not None] == [output]
    assert_close(name, output, getattr(alone, output), expected[output])


@every_case
def test_out_arrays_are_written_whole(name: str, operator: Operator, row: dict, example: Example) -> None:
    inputs, attributes = sample(operator, row, example), attributes_of(operator, row, example)
    fresh = run_any(name, **inputs, outputs=every_output(operator), **attributes)
    out = {
        key: np.full_like(array, np.nan if array.dtype.kind not in "iu" else 77)
        for key, array in fresh._asdict().items()
    }
    result = run_any(name, **inputs, out=out, outputs=every_output(operator), **attributes)
    for key, array in out.items():
        assert getattr(result, key) is array
        np.testing.assert_array_equal(bits(array), bits(getattr(fresh, key)))


@pytest.mark.parametrize(
    ("name", "operator", "row", "example", "pair"), list(cases_with(lambda operator: sorted(operator.in_place_pairs)))
)
def test_outputs_may_be_written_over_inputs_where_the_contract_permits(
    name: str, operator: Operator, row: dict, example: Example, pair: tuple[str, str]
) -> None:
    source, target = pair
    attributes = attributes_of(operator, row, example)
    types = {each.name: row[each.type] for each in (*operator.inputs, *operator.outputs)}
    inputs = sample(operator, row, example)
    if source not in inputs:  # one that is not given by default
        inputs_of = operator.chosen(example.attributes).inputs
        shape = shape_of(next(each.shape for each in inputs_of if each.name == source), example.axes)
        inputs[source] = np.random.default_rng(1).standard_normal(shape).astype(types[source])
    expected = reference(name, inputs, example.attributes, row)
    out = {target: inputs[source]}
    if types[source] != types[target]:
        with pytest.raises(gradkern.OutputError, match=f"out {target} has type {types[source]}"):
            run_any(name, **inputs, out=out, outputs=every_output(operator), **attributes)
        return
    result = run_any(name, **inputs, out=out, outputs=every_output(operator), **attributes)
    assert getattr(result, target) is inputs[source]
    for key, array in result._asdict().items():
        assert_close(name, key, array, expected[key])


def strided(array: np.ndarray, how: str) -> np.ndarray:
    """The same elements in other memory: every second element, backwards, or with the axes in reverse order."""
    if array.ndim == 0 or how == "read-only":
        copy = array.copy()
        copy.flags.writeable = False
        return copy
    if how == "reversed axes":
        return np.asfortranarray(array)
    if how == "backwards":
        return np.ascontiguousarray(np.flip(array))[(slice(None, None, -1),) * array.ndim]
    if how == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)
        view = raw[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
    wide = np.zeros([2 * size for size in array.shape], array.dtype)
    view = wide[(slice(None, None, 2),) * array.ndim]
    view[...] = array
    return view


@pytest.mark.parametrize("how", ["every second", "backwards", "reversed axes", "read-only", "unaligned"])
@float32_cases
def test_inputs_of_any_strides_give_what_contiguous_ones_give(
    name: str, operator: Operator, row: dict, example: Example, how: str
) -> None:
    inputs = sample(operator, row, example)
    result = run_any(
        name,
        **{key: strided(array, how) for key, array in inputs.items()},
        outputs=every_output(operator),
        **example.attributes,
    )
    expected = reference(name, inputs, example.attributes, row)
    for key, array in result._asdict().items():
        assert_close(name, key, array, expected[key])


@every_case
def test_the_same_call_gives_the_same_bits(name: str, operator: Operator, row: dict, example: Example) -> None:
    inputs, attributes = sample(operator, row, example), attributes_of(operator, row, example)
    first, *others = (run_any(name, **inputs, outputs=every_output(operator), **attributes) for _ in range(4))
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(bits(one), bits(two))


@float32_cases
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_one_bad_element_reaches_exactly_what_its_formula_contains(
    name: str, operator: Operator, row: dict, example: Example, poison: float
) -> None:
    inputs = sample(operator, row, example)
    upstream = "InputGradient" if name.startswith("Dml") else operator.data.name
    inputs[upstream].flat[inputs[upstream].size // 2] = poison
    result = run_any(name, **inputs, outputs=every_output(operator), **example.attributes)
    with np.errstate(invalid="ignore"):
        expected = reference(name, inputs, example.attributes, row)
    for key, array in result._asdict().items():
        np.testing.assert_array_equal(np.isfinite(array), np.isfinite(expected[key]), err_msg=f"{name}.{key}")


def zeros(size: int | tuple[Any, ...]) -> Iterator[tuple[int | None, Any]]:
    """The size of an axis or the sizes of several, each in turn set to zero, with its place."""
    if isinstance(size, tuple):
        for place in range(len(size)):
            yield place, (*size[:place], 0, *size[place + 1 :])
    else:
        yield None, 0


def empties() -> Iterator[object]:
    """Every operator with every single axis in turn set to zero, and sizes that follow from it with it."""
    for name, operator in OPERATORS.items():
        example = operator.examples[0]
        inputs = operator.inputs_of(example.axes, example.attributes)
        given = {axis_of(token) for each in inputs for token in each.shape}
        for axis, size in example.axes.items():
            if axis not in given or axis == "words":  # it follows from others
                continue
            if operator.family in ("pooling", "resize") and axis in ("out", "spatial"):  # windows need elements
                continue
            if axis == "H":  # logits of no features are 0, and have a loss
                continue
            if axis == "C" and name.endswith("MergeStatistics"):  # without channels there still are elements
                continue
            if axis == "C" and name.startswith("ConvTranspose"):  # without them Y is the bias, and dB as it was
                continue
            for place, zero in zeros(size):
                axes: dict[str, Any] = {**example.axes, axis: zero}
                for each, contract in operator.axes.items():
                    if contract.broadcasts_to == axis:
                        pairs = zip(axes[axis], axes[each], strict=True)
                        axes[each] = tuple(0 if whole == 0 and part != 1 else part for whole, part in pairs)
                    if (contract.equals or "").startswith(f"{axis}*"):
                        axes[each] = 0
                if axis == "C" and "numbers" in axes:
                    axes["numbers"] %= 2  # 2 C, or one more
                if "words" in axes:
                    axes["words"] = 0  # of bits for each element
                shapes = {each.name: shape_of(each.gives, axes) for each in operator.inputs if each.gives}
                empty = Example(axes=axes, attributes={**example.attributes, **shapes})
                for row, marks in rows(operator):
                    label = f"{name}-{'-'.join(row.values())}-{axis}-{place}"
                    yield pytest.param(name, operator, row, axis, empty, id=label, marks=marks)


NEVER_EMPTY = {
    "B": "without position_ids",
    "S": "without position_ids",
    "D": "at most 0",
    **dict.fromkeys(("d0", "d1"), "numbers out of range"),
    "cached": "position_ids",
    "placed": "batch and sequence",
    "C": "which needs",
    "G": "which is groups",
    "C_per_group": "which needs",
    "M": "which is M_per_group",
    "kernel": "needs at least 1 element",
    "numbers": "expected an odd number",
    "q": "expected",
    "sizes": "as InputGradient",
    "sliced": "that of the slice",
    "out": "the forward (transposed )?convolution gives",
    "N": "which is BatchCount",
    "corners": "which is 4",
    "spatial": "the forward convolution has no output|every axis of it needs at least 1 element|which is OutputSizes",
    **dict.fromkeys(("a", "b", "statistics"), "expected 1 or"),
}
"""Axes of which there cannot be zero, in some operator, while the others are as they were, and what its error says."""


@pytest.mark.parametrize(("name", "operator", "row", "axis", "example"), list(empties()))
def test_sums_over_nothing_are_zero_and_empty_arrays_stay_empty(
    name: str, operator: Operator, row: dict, axis: str, example: Example
) -> None:
    inputs = sample(operator, row, example)
    result, refused = None, ""
    try:
        result = run_any(name, **inputs, outputs=every_output(operator), **attributes_of(operator, row, example))
    except (gradkern.ShapeError, gradkern.DataError) as error:
        refused = str(error)
    if result is None:
        assert re.search(NEVER_EMPTY[axis], refused)
        return
    for each, array in zip(operator.outputs, result, strict=True):
        if each.like is not None:
            assert array.shape == inputs[each.like].shape
        if each.name in ("running_mean", "running_var"):
            share = 1.0 if name == "BatchNormalization" else 0.9  # the merge's go towards 0, as PyTorch's do
            np.testing.assert_array_equal(array, (inputs[str(each.like)] * np.float64(share)).astype(array.dtype))
        elif name == "IsAllFinite":
            assert array
        elif array.shape != inputs[operator.data.name].shape:
            np.testing.assert_array_equal(array.astype(np.float32), 0)


@pytest.mark.parametrize("operator", ["SoftmaxGrad_13", "LogSoftmaxGrad_13"])
def test_a_softmax_along_one_axis_beside_an_empty_one_is_empty(operator: str) -> None:
    for shape in ((3, 0), (2, 3, 0), (2, 3, 0, 4)):
        nothing = np.empty(shape, np.float32)
        assert run_any(operator, nothing, nothing, axis=len(shape) // 2 - 1).dX.shape == shape


@pytest.mark.parametrize("operator", ["LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad", "BiasGeluGrad_dX"])
@pytest.mark.parametrize("data", ["float32", "bfloat16", "float16", "float64"])
def test_sums_over_many_rows_stay_accurate(operator: str, data: str) -> None:
    contract = OPERATORS[operator]
    columns: object = 24 if "Gelu" in operator else (24,)
    example = Example(axes={"rows": (20_000,), "columns": columns})
    row = next(row for row in contract.combinations if row["T"] == data)
    inputs = sample(contract, row, example)
    result = run_any(operator, **inputs, outputs=every_output(contract))
    expected = reference(operator, inputs, {})
    for key, array in result._asdict().items():
        assert_close(operator, key, array, expected[key])


def test_channels_last_arrays_come_back_channels_last() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((2, 6, 7, 4)).astype(np.float32).transpose(0, 3, 1, 2)
    dY = random.standard_normal((2, 6, 7, 4)).astype(np.float32).transpose(0, 3, 1, 2)
    stats = [random.uniform(0.5, 2, 4).astype(np.float32) for _ in range(3)]
    result = gradkern.run("BatchNormalizationGrad", dY, X, *stats)
    assert result.dX.strides == X.strides
    W = random.standard_normal((4, 4, 3, 3)).astype(np.float32)
    result = gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1])
    assert result.dX.strides == X.strides
    expected = reference("ConvGrad", {"dY": dY, "X": X, "W": W}, {"pads": (1, 1, 1, 1)})
    for key, array in result._asdict().items():
        assert_close("ConvGrad", key, array, expected[key])


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sliced": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "in Fortran order": lambda array: np.array(array, order="F"),
    "channels last": lambda array: np.moveaxis(np.moveaxis(array, 1, -1).copy(), -1, 1) if array.ndim > 2 else array,
    "backwards": lambda array: np.flip(np.flip(array).copy()),
    "not aligned": lambda array: misaligned(array),
}


def misaligned(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + 1, np.uint8)
    return memory[1:].view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", list(OPERATORS))
def test_out_arrays_of_any_layout_are_written_whole(name: str, layout: str) -> None:
    operator = OPERATORS[name]
    for row in (
        operator.combinations[0],
        next((row for row in operator.combinations if "bfloat16" in row.values()), operator.combinations[-1]),
    ):
        for example in operator.examples:
            given = sample(operator, row, example) | attributes_of(operator, row, example)
            expected = reference(name, sample(operator, row, example), example.attributes)
            new = run_any(name, **given, outputs=every_output(operator))._asdict()
            sevens = {key: np.full_like(array, 7) for key, array in new.items()}
            out = {key: LAYOUTS[layout](array) if array.ndim else array for key, array in sevens.items()}
            result = run_any(name, **given, outputs=every_output(operator), out=out)._asdict()
            for key, array in out.items():
                assert result[key] is array
                assert_close(name, key, array, expected[key])
                if layout == "sliced" and array.ndim:
                    assert array.base is not None
                    assert (array.base[..., 1::2] == array.dtype.type(7)).all()


@pytest.mark.parametrize("name", [name for name in GRADIENTS if "LayerNorm" in name])
def test_the_statistics_of_a_layer_norm_may_be_flat(name: str) -> None:
    operator = OPERATORS[name]
    example = operator.examples[1]
    row = operator.combinations[0]
    given, attributes = sample(operator, row, example), attributes_of(operator, row, example)
    leading = example.axes["rows"]
    assert isinstance(leading, tuple)
    rows = math.prod(leading)
    statistics = [key for key, each in given.items() if getattr(each, "shape", None) == example.axes["rows"]]
    flat = {key: each.reshape(rows) if key in statistics else each for key, each in given.items()}
    assert statistics
    for one, other in zip(*(run_any(name, **each, **attributes) for each in (flat, given)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_statistics_may_have_one_element_for_each_normalized_axis() -> None:
    random = np.random.default_rng(0)
    X, dY = random.standard_normal((2, 3, 4, 5)), random.standard_normal((2, 3, 4, 5))
    scale, mean, inv_std = random.standard_normal((4, 5)), random.standard_normal((2, 3)), random.uniform(1, 2, (2, 3))
    usual = gradkern.run("LayerNormalizationGrad", dY, X, scale, mean, inv_std, axis=2)
    other = gradkern.run(
        "LayerNormalizationGrad", dY, X, scale.ravel(), mean[..., None, None], inv_std[..., None, None], axis=-2
    )
    np.testing.assert_array_equal(usual.X_grad, other.X_grad)
    assert usual.scale_grad.shape == (4, 5)
    assert other.scale_grad.shape == (20,)
    np.testing.assert_array_equal(usual.scale_grad.ravel(), other.scale_grad)


@pytest.mark.parametrize("name", [name for name in GRADIENTS if "LayerNorm" in name])
@pytest.mark.parametrize("data", ["float32", "float64"])
def test_a_row_of_one_column_is_a_row(name: str, data: str) -> None:
    """Its terms D*scale, s1 and xh*s2 cancel, so the error is measured against them, not against what is left."""
    operator = OPERATORS[name]
    row = next(row for row in operator.combinations if set(row.values()) == {data})
    inputs = sample(operator, row, Example(axes={"rows": (300,), "columns": (1,)}))
    result = run_any(name, **inputs)
    expected = reference(name, inputs, {})
    r = inputs["inv_std_dev" if "inv_std_dev" in inputs else "inv_std_var"][:, None]
    if "Y" in inputs:
        xh = (inputs["Y"] - inputs["bias"]) / inputs["scale"]
    else:
        xh = (inputs["X"] - inputs.get("mean", np.zeros(len(r)))[:, None]) * r
    terms = np.abs(r * inputs["Y_grad"] * inputs["scale"]) * (1 + xh**2)
    assert (np.abs(result.X_grad - expected["X_grad"]) <= 8 * np.finfo(data).eps * terms).all()
    assert_close(name, "scale_grad", result.scale_grad, expected["scale_grad"])


def types_of(*operators: str) -> Iterator[object]:
    for operator in operators:
        for row, marks in rows(OPERATORS[operator]):
            yield pytest.param(operator, row, id=f"{operator}-{'-'.join(row.values())}", marks=marks)


@pytest.mark.parametrize(("operator", "row"), list(types_of("BiasGeluGrad_dX", "BiasFastGeluGrad_dX")))
def test_gelu_has_the_right_limits_and_never_makes_a_nan(operator: str, row: dict) -> None:
    huge = float(ml_dtypes.finfo(row["T"]).max)
    wide = np.array([np.inf, -np.inf, np.nan, huge, -huge, 1e4, -1e4, 100, -100, 0, -0.0], np.float64)
    X = wide.astype(row["T"])
    dX = run_any(operator, np.ones_like(X), X, np.zeros(X.shape, row["TB"])).dX.astype(np.float64)
    np.testing.assert_array_equal(dX, [1, 0, np.nan, 1, 0, 1, 0, 1, 0, 0.5, 0.5])


@pytest.mark.parametrize(("operator", "row"), list(types_of("BiasGelu", "BiasFastGelu")))
def test_gelu_itself_has_the_right_limits(operator: str, row: dict) -> None:
    huge = float(ml_dtypes.finfo(row["T"]).max)
    A = np.array([np.inf, -np.inf, np.nan, huge, -huge, 1e4, -1e4, 100, -100, 0], np.float64).astype(row["T"])
    C = run_any(operator, A, np.zeros(A.shape, row["TB"])).C.astype(np.float64)
    wide = A.astype(np.float64)
    np.testing.assert_array_equal(C, np.where(wide < 0, 0, wide))


def test_a_zero_in_the_invertible_scale_is_an_error_and_writes_nothing() -> None:
    Y = np.ones((3, 4), np.float32)
    scale = np.array([1, 0, 2, 0], np.float32)
    out = {"X_grad": np.full((3, 4), 7, np.float32)}
    with pytest.raises(
        gradkern.DataError,
        match=r"^InvertibleLayerNormalizationGrad: input scale has 2 zeros, the first in column 1; expected none",
    ):
        run_any("InvertibleLayerNormalizationGrad", Y, Y, scale, scale, np.ones(3, np.float32), out=out)
    np.testing.assert_array_equal(out["X_grad"], 7)


@pytest.mark.slow
def test_more_than_two_to_the_31_elements_are_all_right() -> None:
    columns = 4096
    rows = 2**31 // columns + 3
    X = np.full((rows, columns), 0.5, np.float16)
    X[-1] = np.linspace(-3, 3, columns)
    B = np.zeros(columns, np.float16)
    dX = gradkern.run("BiasGeluGrad_dX", X, X, B).dX
    for part in (slice(0, 2), slice(-2, None)):
        expected = reference("BiasGeluGrad_dX", {"dY": X[part], "X": X[part], "B": B}, {})["dX"]
        assert_close("BiasGeluGrad_dX", "dX", dX[part], expected)
