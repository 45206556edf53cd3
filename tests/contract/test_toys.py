"""What a contract can say, each proven on a toy operator: checked at the edge, computed, shown, drawn, typed."""

# ruff: noqa: E501  tables: one case, one line

from __future__ import annotations

import importlib.util
import json
import pickle
from typing import Any

import numpy as np
import pytest
from helpers.calls import OnDevice, message, prepare_any, run_any
from helpers.checkout import ROOT
from helpers.toys import TOYS, examples, toy_arguments, toys
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradkern
from gradkern import (
    ArgumentError,
    AttributeValueError,
    DataError,
    DeviceError,
    DTypeError,
    GradkernError,
    OutputError,
    ShapeError,
)
from gradkern.cli import main
from gradkern.contract.schema import Operator, shape_of
from gradkern.dispatch.recording import recorded
from gradkern.dispatch.run import plan_for

__all__ = ["toys"]

pytestmark = pytest.mark.usefixtures("toys")
LOSS, LOSS_GRAD, DROPOUT = "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad", "SoftmaxDropoutGrad"
GATHER, ND, SLICE, POOL, NORM = "GatherGrad", "GatherNDGrad", "SliceGrad", "MaxPoolGrad", "GroupNorm"
CUDA = (2, 0)  # DLPack's name of the first GPU
CASES = [(name, number) for name, operator in TOYS.items() for number in range(len(operator.examples))]
f4, i4, i8 = np.float32, np.int32, np.int64


def ones(*shape: int, dtype: Any = f4) -> np.ndarray:
    return np.ones(shape, dtype)


def refused(error: type[Exception], name: str, **changes: Any) -> str:
    """The text with which the first example is refused, with these changes and without what is None."""
    given = {key: value for key, value in toy_arguments(name, **changes).items() if value is not None}
    return message(error, run_any, name, **given).removeprefix(f"{name}: ")


def expected_shape(operator: Operator, plan: Any, name: str) -> tuple[int, ...]:
    output = next(each for each in operator.outputs if each.name == name)
    if output.like is not None:
        return plan.call.inputs[output.like].shape
    return shape_of(output.shape or (), plan.call.axes)


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_example_runs_in_every_combination_of_types(name: str, number: int) -> None:
    example = TOYS[name].examples[number]
    operator = TOYS[name].chosen(example.attributes)
    for row in operator.combinations:
        binding = {key: row[each.binds] for key, each in operator.attributes.items() if each.binds}
        given = {**toy_arguments(name, example, row), **binding}
        plan = prepare_any(name, **given)
        results = run_any(name, **given)
        assert all(plan.call.axes[axis] == size for axis, size in example.axes.items())
        for each in operator.outputs:
            array = getattr(results, each.name, None)
            if array is not None:
                assert array.shape == expected_shape(operator, plan, each.name)
                assert array.dtype.name == row[each.type]


@pytest.mark.thorough
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_arrays_of_any_sizes_that_agree_are_taken(data: st.DataObject) -> None:
    name = data.draw(
        st.sampled_from([each for each in TOYS if each not in (SLICE, POOL, "ResizeGrad")])
    )  # whose family asks more
    operator = TOYS[name]
    example = data.draw(examples(operator))
    row = data.draw(st.sampled_from(operator.combinations))
    binding = {key: row[each.binds] for key, each in operator.attributes.items() if each.binds}
    plan = prepare_any(name, **{**toy_arguments(name, example, row), **binding})
    assert {axis: plan.call.axes[axis] for axis in example.axes} == dict(example.axes)


@pytest.mark.thorough
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_an_array_with_one_axis_longer_is_refused_or_is_another_problem(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TOYS)))
    example = data.draw(st.sampled_from(TOYS[name].examples))
    given = toy_arguments(name, example)
    arrays = [key for key, value in given.items() if isinstance(value, np.ndarray) and value.ndim]
    chosen = data.draw(st.sampled_from(arrays))
    axis = data.draw(st.integers(0, given[chosen].ndim - 1))
    given[chosen] = np.concatenate([given[chosen], given[chosen].take([0], axis)], axis)
    try:
        came = dict(prepare_any(name, **given).call.axes)
    except ShapeError as error:
        came = str(error)
    assert came != dict(example.axes)
    assert isinstance(came, dict) or came.startswith(f"{name}: ")


# --- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        (LOSS, {"labels": ones(4)}, "input labels has type float32; I allows int32, int64"),
        (DROPOUT, {"mask": ones(4, 6, dtype="u1")}, "input mask has type uint8; M allows bool"),
        ("BitmaskDropoutGrad", {"mask": ones(3, dtype=i4)}, "input mask has type int32; W allows uint32"),
        (DROPOUT, {"ratio": np.array(0, i8)}, "input ratio has type int64; T1 allows float16, float32, float64"),
        (DROPOUT, {"training_mode": 1.0}, "input training_mode is 1.0; M allows bool"),
        (SLICE, {"starts": np.ones(1, np.uint8)}, "input starts has type uint8; S allows int64, int32"),
        (
            SLICE,
            {"starts": np.array([1], i4), "ends": np.array([3], i8)},
            "input ends has type int64, but input starts has int32; both are of type S",
        ),
    ],
)
def test_an_array_of_another_type_is_refused(name: str, changes: dict[str, Any], expected: str) -> None:
    assert refused(DTypeError, name, **changes) == expected


def test_a_list_of_types_in_a_combination_stands_for_each_of_them() -> None:
    assert len(TOYS[LOSS].combinations) == 8
    assert {"T": "float64", "TOut": "float16", "I": "int64"} in list(TOYS[LOSS].combinations)


# --- the host's memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.25, np.array(0.25, f4), np.float16(0.25), np.array(0.25)], ids=repr)
@pytest.mark.parametrize("mode", [None, True, False, np.array(False)], ids=repr)
def test_a_number_on_the_host_is_read_at_the_call(ratio: Any, mode: Any) -> None:
    given = toy_arguments(DROPOUT, ratio=ratio, **({} if mode is None else {"training_mode": mode}))
    g = given["dy"] * given["mask"] / 0.75 if mode is None or mode else given["dy"]
    expected = given["softmax_y"] * (g - (g * given["softmax_y"]).sum(1, keepdims=True))
    np.testing.assert_allclose(run_any(DROPOUT, **given).dx, expected, rtol=1e-5)


def test_calls_with_other_numbers_share_a_plan_and_with_other_lists_do_not() -> None:
    run_any(DROPOUT, **toy_arguments(DROPOUT, ratio=np.array(0.5, f4)))
    run_any(DROPOUT, **toy_arguments(DROPOUT, ratio=np.array(0.25, f4)))
    assert gradkern.plan_cache.statistics()[:3] == (1, 1, 1)
    run_any(DROPOUT, **toy_arguments(DROPOUT, ratio=np.array(0.25, np.float64)))  # its type is part of a plan
    assert gradkern.plan_cache.statistics()[:3] == (1, 2, 2)
    gradkern.plan_cache.clear()
    given = toy_arguments(GATHER)
    for shape in ((7, 3), [7, 3], np.array([7, 3]), (8, 3)):
        assert run_any(GATHER, **{**given, "shape": shape}).dX.shape == tuple(shape)
    assert gradkern.plan_cache.statistics()[:3] == (1, 3, 3)  # of an array's own type, and of Python's numbers


def test_a_number_in_the_memory_of_the_device_is_an_array_of_the_call() -> None:
    X = ones(3, 4)
    for scale in (2, 2.0, np.array(2, f4), np.float32(2)):
        np.testing.assert_array_equal(run_any("Scale", X, scale).Y, 2 * X)
    plan = plan_for("Scale", {"X": prepare_any("Scale", X, 2.0).call.inputs["X"], "scale": f4_scalar()})
    assert (list(plan.call.inputs), dict(plan.call.scalars)) == (["X", "scale"], {})
    assert dict(prepare_any("Scale", X, 2.0).call.scalars) == {"scale": "float32"}
    half = X.astype("bfloat16")
    assert dict(prepare_any("Scale", half, 2.0).call.scalars) == {"scale": "bfloat16"}


def f4_scalar() -> Any:
    from gradkern.call import Tensor

    return Tensor(np.dtype(f4), (), (), 4)


@pytest.mark.parametrize(
    ("error", "name", "changes", "expected"),
    [
        (ArgumentError, GATHER, {"shape": None}, "input shape missing; it takes shape, indices, dY, tied"),
        (
            ArgumentError,
            GATHER,
            {"shape": None, "dY": None},
            "inputs shape, dY missing; it takes shape, indices, dY, tied",
        ),
        (DataError, GATHER, {"shape": (7, -3)}, "input shape is (7, -3); expected sizes, 0 or more"),
        (DTypeError, GATHER, {"shape": (7.5, 3)}, "input shape is (7.5, 3); S allows int64"),
        (DTypeError, GATHER, {"shape": (7, True)}, "input shape is (7, True); S allows int64"),
        (DTypeError, GATHER, {"shape": (7, "3")}, "input shape is (7, '3'); S allows int64"),
        (DTypeError, GATHER, {"shape": np.array([7.0, 3])}, "input shape has type float64; S allows int64"),
        (
            DataError,
            GATHER,
            {"shape": (7, 2**64)},
            "input shape is (7, 18446744073709551616); expected whole numbers of 64 bits",
        ),
        (DTypeError, "ResizeGrad", {"scales": [1.0, "1"]}, "input scales is (1.0, '1'); F allows float32"),
        (DTypeError, "ResizeGrad", {"scales": np.ones(4)}, "input scales has type float64; F allows float32"),
        (DTypeError, GATHER, {"shape": np.array(["7", "3"])}, "input shape has type str"),
        (DTypeError, DROPOUT, {"ratio": np.array("0.5")}, "input ratio has type str"),
        (
            DTypeError,
            DROPOUT,
            {"ratio": np.array(None)},
            "input ratio has type object; T1 allows float16, float32, float64",
        ),
        (ShapeError, GATHER, {"shape": (2**61, 3)}, f"output dX has shape ({2**61}, 3), which is more bytes than can "),
        (
            ShapeError,
            GATHER,
            {"shape": np.ones((1, 2), i8)},
            "input shape has shape (1, 2); expected rank 1, a list of numbers",
        ),
        (ArgumentError, GATHER, {"shape": "73"}, "input shape is of type str; expected an array"),
        (ShapeError, DROPOUT, {"ratio": np.ones(1, f4)}, "input ratio has shape (1,); expected (), a single number"),
        (AttributeValueError, DROPOUT, {"ratio": 1.0}, "attribute ratio has the value 1.0; expected less than 1"),
        (
            AttributeValueError,
            DROPOUT,
            {"ratio": float("nan")},
            "attribute ratio has the value nan; the least allowed is 0",
        ),
        (DataError, DROPOUT, {"ratio": np.array(1, f4)}, "input ratio has the value 1.0; expected less than 1"),
        (DataError, DROPOUT, {"ratio": np.array(-1, f4)}, "input ratio has the value -1.0; the least allowed is 0"),
        (
            DeviceError,
            DROPOUT,
            {"ratio": OnDevice(np.array(0.5, f4), CUDA)},
            "input ratio is on cuda:0; expected it in the host's memory, as nothing waits for it",
        ),
        (
            DeviceError,
            GATHER,
            {"shape": OnDevice(np.array([7, 3]), CUDA)},
            "input shape is on cuda:0; expected it in the host's memory, as its values are read",
        ),
    ],
)
def test_what_is_not_on_the_host_or_no_such_number_is_refused(
    error: type[Exception], name: str, changes: dict[str, Any], expected: str
) -> None:
    assert refused(error, name, **changes).startswith(expected)
    assert refused(error, name, **changes).startswith(expected)  # the second call meets no plan that the first has left


def test_a_number_is_checked_when_the_plan_is_warm() -> None:
    run_any(DROPOUT, **toy_arguments(DROPOUT, ratio=np.array(0.5, f4)))
    assert refused(DataError, DROPOUT, ratio=np.array(2, f4)) == "input ratio has the value 2.0; expected less than 1"


def test_an_input_overrides_the_attribute_of_its_name() -> None:
    scores, labels = np.random.default_rng(0).standard_normal((4, 5)).astype(f4), np.array([0, 1, 2, 1])
    run = lambda **named: run_any(LOSS, scores, labels, output_type="float32", **named).output  # noqa: E731
    expected = run_any(LOSS, scores[[0, 2]], labels[[0, 2]], output_type="float32").output
    for ignored in (1, np.array(1), np.int64(1)):
        np.testing.assert_allclose(run(ignore_index=ignored), expected, rtol=1e-6)
    assert (
        prepare_any(LOSS, scores, labels, ignore_index=np.array(1), output_type="f4").call.attributes["ignore_index"]
        is None
    )
    assert prepare_any(LOSS, scores, labels, ignore_index=1, output_type="f4").call.attributes["ignore_index"] == 1


def test_a_prepared_plan_takes_other_numbers_and_refuses_other_lists() -> None:
    given = toy_arguments(DROPOUT, ratio=np.array(0.5, f4))
    del given["axis"]
    plan = prepare_any(DROPOUT, **given, axis=1)
    other = plan(**{**given, "ratio": np.array(0.25, f4)}).dx
    np.testing.assert_array_equal(other, run_any(DROPOUT, **{**given, "ratio": 0.25}, axis=1).dx)
    assert message(ArgumentError, plan, **{**given, "ratio": np.array(0.5)}) == (
        f"{DROPOUT}: inputs on the host are ratio float64; the plan was prepared for ratio float32"
    )
    given = toy_arguments(GATHER)
    plan = prepare_any(GATHER, **given)
    np.testing.assert_array_equal(plan(**given).dX, run_any(GATHER, **given).dX)
    assert message(ArgumentError, plan, **{**given, "shape": (8, 3)}) == (
        f"{GATHER}: inputs on the host are shape (8, 3); the plan was prepared for shape (7, 3)"
    )


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_plan_can_be_pickled_and_a_call_recorded_and_planned_again(name: str, number: int) -> None:
    from gradkern.cli.sizes import wanted_of

    given = toy_arguments(name, TOYS[name].examples[number])
    if name == DROPOUT:
        given["training_mode"] = np.array(True)
    plan = prepare_any(name, **given)
    again = pickle.loads(pickle.dumps(plan))
    assert again.call == plan.call
    (line,) = recorded()
    planned = wanted_of(json.loads(json.dumps(line))).plan("cpu")
    for key in ("axes", "attributes", "inputs", "scalars", "outputs"):
        assert getattr(planned.call, key) == getattr(plan.call, key), key


# --- shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        # an attribute's size, and a quotient
        (NORM, {"groups": 4}, "C/G is 6/4; expected a whole number, as input X has shape (2, 4, 5, 6)"),
        (
            "RotaryEmbedding",
            {"X": ones(2, 3, 2, 5)},
            "D/2 is 5/2; expected a whole number, as input X has shape (2, 3, 2, 5)",
        ),
        (
            "RotaryEmbedding",
            {"cos_cache": ones(7, 4)},
            "input cos_cache has shape (7, 4): axis 1 (half) is 4; expected 2, which is D/2",
        ),
        (
            "BitmaskDropoutGrad",
            {"mask": ones(2, dtype=np.uint32)},
            "input mask has shape (2,): axis 0 (words) is 2; expected 3, which is ceil(sizes/32)",
        ),
        ("SwiGLUGrad", {"X": ones(4, 7)}, "input X has shape (4, 7): axis 1 (packed) is 7; expected 6, which is 2*F"),
        # an attribute's choice
        (LOSS_GRAD, {"dY": ones(4)}, "input dY has shape (4,): rank 1; expected rank 0, ()"),
        (
            LOSS_GRAD,
            {"reduction": "none", "dY": ones(3)},
            "input log_prob has shape (4, 5): axis 0 (N) is 4; expected 3, as input dY has shape (3,)",
        ),
        (
            NORM,
            {"channels_last": 0},
            "input gamma has shape (6,): axis 0 (C) is 6; expected 4, as input X has shape (2, 4, 5, 6)",
        ),
        # an axis between groups
        (
            "SoftmaxGrad_13",
            {"Y": ones(2, 4, 4, 5)},
            "input Y has shape (2, 4, 4, 5): axis 1 (D) is 4; expected 3, as input dY has shape (2, 3, 4, 5)",
        ),
        # a shape on the host
        (
            GATHER,
            {"dY": ones(4, 4)},
            "input dY has shape (4, 4): axis 1 (after) is 4; expected 3, as input shape is (7, 3)",
        ),
        (ND, {"shape": (3, 4)}, "input update has shape (5, 2): rank 2; expected rank 1, (batch (0), gathered (1), slice (0))"),
        (SLICE, {"dY": ones(3, 5)}, "input dY has shape (3, 5); the slice has (2, 5)"),
        (SLICE, {"ends": [3, 4]}, "input ends has shape (2,): axis 0 (n) is 2; expected 1, as input starts has shape (1,)"),
        # a shape that the caller says
        (
            POOL,
            {"input_size": [9, 9]},
            "input dY has spatial shape (2, 2); the forward pass gives (4, 4)",
        ),
        ("ResizeGrad", {"scales": [1, 1, 3, 3]}, "input dY has spatial shape (4, 9); the forward pass gives (6, 9)"),
        # broadcasting
        ("DivGrad", {"A": ones(2, 3, 4)}, "input A has shape (2, 3, 4): 3 a dimensions; expected 2 at most, as input dY has shape (3, 4)"),
        ("DivGrad", {"A": ones(3)}, "input A has shape (3,): axis 0 is 3; expected 1 or 4, as input dY has shape (3, 4)"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(name: str, changes: dict[str, Any], expected: str) -> None:
    assert refused(ShapeError, name, **changes) == expected


def test_an_attribute_chooses_shapes() -> None:
    given = toy_arguments(LOSS)
    assert run_any(LOSS, **given).output.shape == ()
    assert run_any(LOSS, **{**given, "reduction": "none"}).output.shape == (4,)
    X = np.random.default_rng(0).standard_normal((2, 6, 4, 5)).astype(f4)
    first = run_any(NORM, X, ones(6), ones(6), groups=3, channels_last=0, outputs=["Y", "mean"])
    last = run_any(NORM, np.moveaxis(X, 1, -1), ones(6), ones(6), groups=3, outputs=["Y", "mean"])
    np.testing.assert_allclose(np.moveaxis(last.Y, -1, 1), first.Y, rtol=1e-6)
    assert first.mean.shape == (2, 3)


def test_a_shape_that_nothing_gives_is_the_callers_to_say() -> None:
    given = toy_arguments(POOL, input_size=None)
    given = {key: value for key, value in given.items() if value is not None}
    assert message(ArgumentError, run_any, POOL, **given) == (
        f"{POOL}: output dX is wanted, and nothing gives its spatial; "
        "expected attribute input_size or an array for dX in out"
    )
    for size in ((5, 4), (4, 5), (5, 5)):
        by_attribute = run_any(POOL, **given, input_size=size).dX
        out = np.empty((2, 3, *size), f4)
        assert run_any(POOL, **given, out={"dX": out}).dX is out
        np.testing.assert_array_equal(out, by_attribute)
    for out, expected in (
        (ones(2, 3, 9, 9), "input dY has spatial shape (2, 2); the forward pass gives (4, 4)"),
        (ones(2, 3, 4), "out dX has shape (2, 3, 4): rank 3; expected rank 4, (N, C, spatial (2))"),
        (
            ones(2, 9, 4, 4),
            "out dX has shape (2, 9, 4, 4): axis 1 (C) is 9; expected 3, as input dY has shape (2, 3, 2, 2)",
        ),
    ):
        assert message(GradkernError, run_any_of(OutputError, ShapeError), POOL, **given, out={"dX": out}) == (
            f"{POOL}: {expected}"
        )


def run_any_of(*kinds: type[Exception]) -> Any:
    """`run`, whose errors of these kinds are all one."""

    def run(*args: Any, **named: Any) -> Any:
        try:
            return run_any(*args, **named)
        except kinds as error:
            raise GradkernError(str(error)) from None

    return run


# --- outputs ---------------------------------------------------------------------------------------------------------


def test_an_alias_is_the_inputs_own_array() -> None:
    total = ones(3, 4)
    for _ in range(2):
        assert run_any("InPlaceAccumulator", total, ones(3, 4, dtype="f2")).new_sum is total
    np.testing.assert_array_equal(total, 3)
    plan = prepare_any("InPlaceAccumulator", total, ones(3, 4))
    assert plan(total, ones(3, 4)).new_sum is total
    assert run_any("InPlaceAccumulator", total, ones(3, 4), out={"new_sum": total}).new_sum is total
    np.testing.assert_array_equal(total, 5)
    assert pickle.loads(pickle.dumps(plan)).call.in_place == {("old_sum", "new_sum")}
    assert message(OutputError, run_any, "InPlaceAccumulator", total, ones(3, 4), out={"new_sum": ones(3, 4)}) == (
        "InPlaceAccumulator: out new_sum is another array than input old_sum, whose memory that output is"
    )
    total.flags.writeable = False
    assert message(OutputError, run_any, "InPlaceAccumulator", total, ones(3, 4)) == (
        "InPlaceAccumulator: out new_sum is read-only"
    )


def test_an_alias_of_an_input_that_is_not_given_is_a_new_array() -> None:
    given = toy_arguments(GATHER)
    new = run_any(GATHER, **given).dX
    tied = ones(7, 3)
    assert run_any(GATHER, **given, tied=tied).dX is tied
    np.testing.assert_allclose(tied, new + 1, rtol=1e-6)


def test_indices_may_count_from_the_end() -> None:
    dY = np.arange(12, dtype=f4).reshape(4, 3)
    dX = run_any(GATHER, (5, 3), np.array([-1, 4, 0, -5]), dY).dX
    np.testing.assert_array_equal(dX[[0, 4]], [dY[2] + dY[3], dY[0] + dY[1]])


def test_a_third_input_and_a_third_output_are_optional() -> None:
    one = ones(3, 4)
    np.testing.assert_array_equal(run_any("ScaledSum", one, one, scales=[2, 3]).output, 5)
    np.testing.assert_array_equal(run_any("ScaledSum", one, one, one, scales=(2, 3, 0.5)).output, 5.5)
    np.testing.assert_array_equal(run_any("ScaledSum", one, one, one).output, 3)
    two = run_any("BatchScale", one, scale_0=2, scale_1=3)
    assert two.output_2 is None
    three = run_any("BatchScale", one, scale_0=2, scale_1=3, scale_2=4, outputs=["output_0", "output_1", "output_2"])
    assert [each[0, 0] for each in three] == [2, 3, 4]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "attribute scales is 1.0; expected a list of floats"),
        ([1, "2"], "attribute scales is '2'; expected a list of floats"),
        ([1, True], "attribute scales is True; expected a list of floats"),
        ([10**400], "attribute scales is an int too large for a float"),
    ],
)
def test_a_list_of_floats_has_floats(value: Any, expected: str) -> None:
    assert refused(AttributeValueError, "ScaledSum", scales=value) == expected
    assert prepare_any("ScaledSum", ones(3), ones(3), scales=np.array([1, 2])).call.attributes["scales"] == (1.0, 2.0)


def test_an_input_and_an_attribute_of_one_type_variable_agree() -> None:
    """In LayerNormalization the type that an attribute binds is no input's; here it may be, and was not compared."""
    types = {"scores": ones(4, 5, dtype="f2"), "labels": ones(4, dtype=i4)}
    assert run_any(LOSS, **types, output_type="float32").log_prob.dtype == f4
    assert refused(DTypeError, LOSS, **types, output_type="float16").startswith(
        "the types T=float16, I=int32, TOut=float16 are not registered together; registered are "
    )


# --- shown and typed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (LOSS, ["labels:I (N, spatial) the class of each row (index into C)"]),
        (LOSS, ["ignore_index:I () label that does not count (in the host's memory, optional)"]),
        (LOSS, ["output:TOut (); (N, spatial) where reduction is none the loss"]),
        (DROPOUT, ["mask:M (rows, columns) what was kept (mask)", "softmax_y:T (rows, columns) output of softmax (probability)"]),
        (DROPOUT, ["ratio float, default 0.5, at least 0, below 1 share that was dropped"]),
        ("Scale", ["scale:T () factor (in the memory of the host or the device)"]),
        (NORM, ["X:T (N, spatial, C); (N, C, spatial) where channels_last is 0 input", "G axis of groups groups"]),
        (NORM, ["channels_per_group axis of C/G channels of each group"]),
        (GATHER, ["shape:S the shape (before, V, after) shape of the data (in the host's memory)"]),
        (GATHER, ["indices:I (gathered) what was gathered (index into V, those below 0 from its end on)"]),
        (GATHER, ["tied -> dX always"]),
        (ND, ["indices:S (batch, gathered, q) what was gathered (index into indexed along q, those below 0 from its end on)"]),
        (POOL, ["Indices:I (N, C, out) where each maximum was (index into N x C x spatial)"]),
        (POOL, ["spatial group of input_size dimensions of the input"]),
        ("ScaledSum", ["scales floats, default 1.0 a factor for each input, or one for all"]),
    ],
)  # fmt: skip
def test_the_command_shows_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, lines: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["ops", name]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert set(lines) <= set(shown)
    assert main(["ops", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"][0]["name"] == name
    assert main(["explain", name]) == 0


def tool(name: str) -> Any:
    specification = importlib.util.spec_from_file_location(f"toy_{name}", ROOT / "tools" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_stubs_and_the_readme_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stubs = tool("stubs")
    monkeypatch.setattr(stubs, "_operators", lambda: TOYS)
    public = stubs.public()
    compile(public.replace("...", "pass"), "__init__.pyi", "exec")
    compile(stubs.results(), "results.pyi", "exec")
    namespace: dict[str, Any] = {}
    exec(stubs.contracts(), namespace)
    assert namespace["OPERATORS"] == dict(TOYS)
    for text in (
        "shape: _Array | Sequence[int]",
        "ratio: _Array | float | None = None",
        "training_mode: _Array | bool | None = None",
        "ignore_index: _Array | int | None = None",
        "scales: Sequence[float] | None = None",
        "input_size: Sequence[int] | None = None",
    ):
        assert text in public, text
    assert (
        public.count("ratio:") == public.count('def run(op: Literal["SoftmaxDropoutGrad"]') * 2
    )  # each once, and its doc; in run and in prepare, whose overloads for errors have none
    assert "| `GatherGrad` | shape (host), indices, dY, tied | dX |" in tool("readme").operators()
