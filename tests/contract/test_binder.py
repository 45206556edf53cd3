"""Who is who in a call: names, positions, wanted outputs; and the text of every refusal."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers.calls import OPERATORS, FakeProvider, arguments, message, run_any

import gradkern
from gradkern import ArgumentError, UnknownOperatorError
from gradkern.contract import binder
from gradkern.contract.binder import attribute_key
from gradkern.contract.request import request_of

LAYER = "LayerNormalizationGrad"
CONV = "ConvGrad"
GELU = "BiasGeluGrad_dX"

pytestmark = pytest.mark.usefixtures("provider")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ConvGrd", " (did you mean ConvGrad or Conv?)"),
        ("convgrad", " (did you mean ConvGrad or DivGrad or Conv?)"),
        ("BiasGeluGrad", " (did you mean BiasGeluGrad_dX or FastGeluGrad or GeluGrad?)"),
        ("Zip", ""),
        (7, ""),
        (["ConvGrad"], " (did you mean ConvGrad?)"),
    ],
)
def test_an_unknown_operator_is_refused_with_the_nearest_names(name: Any, hint: str) -> None:
    expected = f"unknown operator {name!r}{hint}; `gradkern ops` lists the operators"
    assert message(UnknownOperatorError, gradkern.run, name) == expected
    assert message(UnknownOperatorError, gradkern.prepare, name) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"domain": "ai.onnx"}, "ConvGrad: there is none in domain 'ai.onnx'; it is of 'com.microsoft'"),
        ({"version": 0}, "ConvGrad: there is none of version 0; it is there since version 1"),
        ({"version": "1"}, "ConvGrad: there is none of version '1'; it is there since version 1"),
    ],
)
def test_an_operator_of_another_domain_or_version_is_refused(given: dict[str, Any], expected: str) -> None:
    assert message(UnknownOperatorError, gradkern.run, CONV, **arguments(CONV), **given) == expected


def test_the_right_domain_and_version_are_taken() -> None:
    assert gradkern.run(CONV, **arguments(CONV), domain="com.microsoft", version=1).dX is not None
    assert gradkern.run(CONV, **arguments(CONV), version=7).dX is not None


@pytest.mark.parametrize("positions", range(4))
def test_inputs_come_by_position_then_by_name(positions: int, provider: FakeProvider) -> None:
    given = arguments(CONV)
    by_position = [given.pop(name) for name in ("dY", "X", "W")[:positions]]
    gradkern.run(CONV, *by_position, **given)
    buffers = provider.plans[0].runs[0][0]
    expected = arguments(CONV)
    for name, buffer in zip(("dY", "X", "W"), buffers, strict=True):
        np.testing.assert_array_equal(buffer, expected[name])


def test_missing_inputs_are_all_named() -> None:
    dY, X, W = (arguments(CONV)[name] for name in ("dY", "X", "W"))
    assert message(ArgumentError, gradkern.run, CONV, dY, X) == "ConvGrad: input W missing; it takes dY, X, W"
    assert message(ArgumentError, gradkern.run, CONV, W=W) == "ConvGrad: inputs dY, X missing; it takes dY, X, W"
    assert message(ArgumentError, gradkern.run, CONV, dY, None, W) == "ConvGrad: input X missing; it takes dY, X, W"
    assert message(ArgumentError, gradkern.run, CONV) == "ConvGrad: inputs dY, X, W missing; it takes dY, X, W"


def test_surplus_inputs_are_counted() -> None:
    assert message(ArgumentError, gradkern.run, CONV, 1, 2, 3, 4) == "ConvGrad: 4 inputs given; it takes 3: dY, X, W"


def test_an_input_given_twice_is_named() -> None:
    given = arguments(CONV)
    expected = "ConvGrad: input X is given twice, by name and as number 2"
    assert message(ArgumentError, gradkern.run, CONV, given["dY"], given["X"], **given) == (
        "ConvGrad: input dY is given twice, by name and as number 1"
    )
    del given["dY"]
    assert message(ArgumentError, gradkern.run, CONV, 1, 2, **given) == expected


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        (
            CONV,
            "pad",
            "ConvGrad: unknown argument 'pad' (did you mean pads?); "
            "its attributes are auto_pad, dilations, group, kernel_shape, pads, strides; its inputs are dY, X, W",
        ),
        (
            CONV,
            "padding",
            "ConvGrad: unknown argument 'padding' (did you mean pads?); "
            "its attributes are auto_pad, dilations, group, kernel_shape, pads, strides; its inputs are dY, X, W",
        ),
        (
            LAYER,
            "Axis",
            "LayerNormalizationGrad: unknown argument 'Axis' (did you mean axis?); "
            "its attributes are axis, branch_grad_type; "
            "its inputs are Y_grad, X, scale, mean, inv_std_dev, residual_grad",
        ),
        (GELU, "alpha", "BiasGeluGrad_dX: unknown argument 'alpha'; its attributes are none; its inputs are dY, X, B"),
        (
            GELU,
            "dy",
            "BiasGeluGrad_dX: unknown argument 'dy' (did you mean dY?); "
            "its attributes are none; its inputs are dY, X, B",
        ),
        (
            "DmlBatchNormalizationGrad",
            "epsilon",
            "DmlBatchNormalizationGrad: unknown argument 'epsilon' (did you mean Epsilon?); "
            "its attributes are Epsilon; its inputs are Input, InputGradient, Mean, Variance, Scale",
        ),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest_names(name: str, argument: str, expected: str) -> None:
    assert message(ArgumentError, gradkern.run, name, **arguments(name), **{argument: 1}) == expected


def test_a_default_output_like_an_optional_input_is_computed_where_that_is_given() -> None:
    X, W, B, labels = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32), np.ones(4, np.float32), np.arange(2)
    inputs = {"X": X, "W": W, "labels": labels}
    wanted = partial(request_of, "LinearCrossEntropy", ())
    assert wanted(inputs.copy()).wanted == ("loss", "dX", "dW")
    assert wanted({**inputs, "B": B}).wanted == ("loss", "dX", "dW", "dB")
    assert wanted(inputs.copy(), out={"dB": B}).wanted == ("loss", "dX", "dW", "dB")  # refused when it is planned
    assert wanted(inputs.copy(), outputs=["dB"]).wanted == ("dB",)
    statistics = np.ones((2, 1), np.float32)
    inputs = {"dY": X, "X": X, "mean": statistics, "inv_std": statistics, "groups": 1}
    assert request_of("GroupNormGrad", (), inputs).wanted == ("dX",)


# --- outputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OPERATORS))
def test_the_result_is_a_named_tuple_in_contract_order(name: str) -> None:
    result = run_any(name, **arguments(name))
    outputs = [each for each in OPERATORS[name].outputs if not each.appended]
    assert type(result).__name__ == name
    assert result._fields == tuple(each.name for each in outputs)
    for each, array in zip(outputs, result, strict=True):
        assert (array is not None) == each.default


def test_attributes_are_told_apart_by_type_and_value_but_not_by_container() -> None:
    values = [1, 1.0, True, "1", (1, 1), (1, True), (1.0, 1), (1,), (), ((1, 1),), np.int64(1), np.array(1)]
    assert len({attribute_key({"a": value}) for value in values}) == len(values)
    same = [(1, 2), [1, 2], np.array([1, 2])]
    assert len({attribute_key({"pads": value, "b": None}) for value in same}) == 1
    assert attribute_key({"a": 1, "b": 2}) == attribute_key({"b": 2, "a": 1})


def test_tuples_that_come_and_go_are_not_mistaken_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder, "_tuples", {})
    constant = (1, 2)
    for number in range(2 * binder._MOST):
        for value in ((number, 1), (number, True), (number, 1.0), constant):
            assert attribute_key({"pads": value}) == (("pads", (tuple(map(type, value)), value)),)
    assert len(binder._tuples) == binder._MOST
    assert binder._tuples[id(constant)][1] is constant
    kept = set(binder._tuples)
    attribute_key({"pads": ([1],)})
    assert set(binder._tuples) == kept


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (None, ["dX"]),
        ("dB", ["dB"]),
        (["dB", "dX"], ["dX", "dB"]),
        (("dX",), ["dX"]),
        ({"dB"}, ["dB"]),
        ((name for name in ["dB"]), ["dB"]),
    ],
)
def test_only_wanted_outputs_are_planned_and_returned(
    outputs: Any, expected: list[str], provider: FakeProvider
) -> None:
    result = gradkern.run(GELU, **arguments(GELU), outputs=outputs)
    assert [name for name, array in result._asdict().items() if array is not None] == expected
    assert list(provider.calls[0].outputs) == expected


def test_an_array_for_an_output_asks_for_it() -> None:
    given = arguments(GELU)
    dB = np.empty_like(given["B"])
    result = gradkern.run(GELU, **given, out={"dB": dB})
    assert result.dB is dB
    assert result.dX is not None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"outputs": ["dZ"]}, "BiasGeluGrad_dX: unknown output 'dZ'; its outputs are dX, dB"),
        ({"outputs": ["y", "z"]}, "BiasGeluGrad_dX: unknown output 'y'; its outputs are dX, dB"),
        ({"outputs": [["dX"]]}, "BiasGeluGrad_dX: unknown output ['dX']; its outputs are dX, dB"),
        ({"outputs": ["dX", "dB", "dX"]}, "BiasGeluGrad_dX: output 'dX' is wanted twice"),
        ({"outputs": []}, "BiasGeluGrad_dX: outputs is empty; name at least one of dX, dB"),
        ({"outputs": 1}, "BiasGeluGrad_dX: outputs is 1; expected names of outputs"),
        ({"out": {"DX": None}}, "BiasGeluGrad_dX: unknown output 'DX' (did you mean dX?); its outputs are dX, dB"),
        (
            {"outputs": ["dX"], "out": {"dB": None}},
            "BiasGeluGrad_dX: out has an array for 'dB', which is not among the wanted outputs",
        ),
        (
            {"out": np.zeros(3)},
            "BiasGeluGrad_dX: out is a ndarray; expected a mapping from output names to arrays",
        ),
        (
            {"out": {"dX": None}},
            "BiasGeluGrad_dX: out dX is of type NoneType; expected an array "
            "(NumPy, PyTorch, __dlpack__ or __array_interface__)",
        ),
    ],
)
def test_outputs_that_cannot_be_are_refused(asked: dict[str, Any], expected: str) -> None:
    assert message(ArgumentError, gradkern.run, GELU, **arguments(GELU), **asked) == expected


def test_an_output_that_is_not_optional_cannot_be_left_out() -> None:
    from gradkern.contract.binder import Binder

    contract = OPERATORS[GELU]
    always = replace(contract, outputs=tuple(replace(each, optional=False) for each in contract.outputs))
    expected = f"{GELU}: output dX is not optional; outputs leaves it out"
    assert message(ArgumentError, Binder(GELU, always).wanted, ["dB"], None) == expected
