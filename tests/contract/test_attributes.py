"""Attribute values: what is taken, what it becomes in the call, and the text of every refusal."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.calls import FakeProvider, arguments, message, run_any

import gradkern
from gradkern import ArgumentError, AttributeValueError, DTypeError

CONV, LAYER, DML = "ConvGrad", "LayerNormalizationGrad", "DmlBatchNormalizationGrad"
BATCH, INVERTIBLE = "BatchNormalizationGrad", "InvertibleLayerNormalizationGrad"


def planned(provider: FakeProvider, name: str, **attributes: Any) -> dict[str, Any]:
    """The attributes as the provider gets them."""
    run_any(name, **{**arguments(name), **attributes})
    return dict(provider.calls[-1].attributes)


def test_defaults_are_filled_in_and_lists_get_their_length(provider: FakeProvider) -> None:
    given = arguments(CONV, pads=None)
    given["dY"] = given["dY"][:, :, :7, :6]
    gradkern.run(CONV, **given)
    assert provider.calls[0].attributes == {
        "auto_pad": "NOTSET",
        "dilations": (1, 1),
        "group": 1,
        "kernel_shape": (3, 3),
        "pads": (0, 0, 0, 0),
        "strides": (1, 1),
    }


PADS = "zeros before each spatial dimension then after each; 0 by default"
INTS = f"expected a list of ints, 2 for every spatial dimension: {PADS}"


@pytest.mark.parametrize(
    ("value", "becomes"), [(-1, 1), (1, 1), (np.int64(-1), 1), (np.array(1), 1), (np.uint8(1), 1), (None, 1)]
)
def test_an_int_may_be_any_whole_number_and_an_axis_is_counted_from_the_front(
    provider: FakeProvider, value: Any, becomes: int
) -> None:
    assert planned(provider, LAYER, axis=value)["axis"] == becomes


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2), np.int8(0)])
def test_a_float_may_be_any_real_number(provider: FakeProvider, value: Any) -> None:
    taken = planned(provider, DML, Epsilon=value)["Epsilon"]
    assert type(taken) is float
    assert taken == value


@pytest.mark.parametrize("value", [[1] * 4, (1,) * 4, np.ones(4, np.int32), [np.int64(1), True + 0, 1, 1]])
def test_ints_may_be_a_list_a_tuple_or_an_array(provider: FakeProvider, value: Any) -> None:
    assert planned(provider, CONV, pads=value)["pads"] == (1, 1, 1, 1)


@pytest.mark.parametrize("value", ["float16", np.float16, np.dtype("float16"), "half"])
def test_a_type_may_be_a_name_or_a_numpy_type(provider: FakeProvider, value: Any) -> None:
    given = arguments(INVERTIBLE)
    for name in ("Y_grad", "inv_std_var"):
        given[name] = given[name].astype(np.float32)
    result = gradkern.run(INVERTIBLE, **given, X_grad_type=value)
    assert result.X_grad.dtype == np.float16
    assert provider.calls[0].outputs["X_grad"].dtype == np.float16


@pytest.mark.parametrize("value", ["bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)])
def test_bfloat16_is_ml_dtypes_own(provider: FakeProvider, value: Any) -> None:
    assert gradkern.run(INVERTIBLE, **arguments(INVERTIBLE), X_grad_type=value).X_grad.dtype == ml_dtypes.bfloat16


@pytest.mark.torch
def test_a_type_may_be_one_of_torch(provider: FakeProvider) -> None:
    import torch

    for kind, expected in ((torch.float16, np.float16), (torch.bfloat16, ml_dtypes.bfloat16)):
        assert gradkern.run(INVERTIBLE, **arguments(INVERTIBLE), X_grad_type=kind).X_grad.dtype == expected


def test_a_type_comes_from_the_out_array_and_else_from_the_default(provider: FakeProvider) -> None:
    given = arguments(INVERTIBLE)
    assert gradkern.run(INVERTIBLE, **given).X_grad.dtype == np.float32
    out = np.empty(given["Y"].shape, np.float16)
    assert gradkern.run(INVERTIBLE, **given, out={"X_grad": out}).X_grad is out


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        (DML, {"Epsilon": None}, "attribute Epsilon is missing; it has no default (added to Variance)"),
        # int
        (LAYER, {"axis": 1.0}, "attribute axis is 1.0; expected an int"),
        (LAYER, {"axis": True}, "attribute axis is True; expected an int"),
        (LAYER, {"axis": "1"}, "attribute axis is '1'; expected an int"),
        (LAYER, {"axis": [1]}, "attribute axis is [1]; expected an int"),
        (LAYER, {"axis": {}}, "attribute axis is {}; expected an int"),
        (LAYER, {"axis": np.array([1])}, "attribute axis is array([1]); expected an int"),
        (LAYER, {"axis": np.array(1.0)}, "attribute axis is array(1.); expected an int"),
        (LAYER, {"axis": 2}, "attribute axis is 2, but input X has rank 2; allowed are -2 to 1"),
        (LAYER, {"axis": -3}, "attribute axis is -3, but input X has rank 2; allowed are -2 to 1"),
        (INVERTIBLE, {"axis": 5}, "attribute axis is 5, but input Y has rank 2; allowed are -2 to 1"),
        (CONV, {"group": 0}, "attribute group has the value 0; the least allowed is 1"),
        # float
        (DML, {"Epsilon": "small"}, "attribute Epsilon is 'small'; expected a float"),
        (DML, {"Epsilon": True}, "attribute Epsilon is True; expected a float"),
        (DML, {"Epsilon": np.array(0.5)}, "attribute Epsilon is array(0.5); expected a float"),
        (DML, {"Epsilon": 10**400}, "attribute Epsilon is an int too large for a float"),
        (DML, {"Epsilon": -1e-5}, "attribute Epsilon has the value -1e-05; the least allowed is 0"),
        (DML, {"Epsilon": float("nan")}, "attribute Epsilon has the value nan; the least allowed is 0"),
        # string
        (BATCH, {"activation": 1}, "attribute activation is 1; expected a string"),
        (
            BATCH,
            {"activation": "fast"},
            "attribute activation is 'fast'; allowed are none, relu, leaky_relu, silu, relu6, hardswish, elu, gelu",
        ),
        (
            CONV,
            {"auto_pad": "same_upper"},
            "attribute auto_pad is 'same_upper' (did you mean SAME_UPPER or SAME_LOWER?); "
            "allowed are NOTSET, VALID, SAME_UPPER, SAME_LOWER",
        ),
        # ints
        (CONV, {"pads": 1}, f"attribute pads is 1; {INTS}"),
        (CONV, {"pads": "1111"}, f"attribute pads is '1111'; {INTS}"),
        (CONV, {"pads": {1}}, f"attribute pads is {{1}}; {INTS}"),
        (CONV, {"pads": [1, 1, 1, 1.0]}, "attribute pads is 1.0; expected a list of ints"),
        (CONV, {"pads": [1, 1, True, 1]}, "attribute pads is True; expected a list of ints"),
        (CONV, {"pads": [[1, 1], [1, 1]]}, "attribute pads is [1, 1]; expected a list of ints"),
        (CONV, {"pads": np.ones((2, 2), int)}, "attribute pads is [1, 1]; expected a list of ints"),
        (CONV, {"pads": np.array(1)}, f"attribute pads is 1; {INTS}"),
        (CONV, {"pads": [1, 1, 1, -1]}, "attribute pads has the value -1; the least allowed is 0"),
        (CONV, {"strides": [1, 0]}, "attribute strides has the value 0; the least allowed is 1"),
        (
            CONV,
            {"pads": [1, 1]},
            f"attribute pads has 2 values, (1, 1); expected 4, 2 for every one of the 2 spatial dimensions: {PADS}",
        ),
        (
            CONV,
            {"strides": [1, 1, 1]},
            "attribute strides has 3 values, (1, 1, 1); expected 2, one for every one of the 2 spatial dimensions: "
            "step of the kernel",
        ),
        # type
        (INVERTIBLE, {"X_grad_type": "float12"}, "attribute X_grad_type is 'float12'; expected the name of a type"),
        (INVERTIBLE, {"X_grad_type": "(2,f4"}, "attribute X_grad_type is '(2,f4'; expected the name of a type"),
        (INVERTIBLE, {"X_grad_type": 3.5}, "attribute X_grad_type is 3.5; expected the name of a type"),
        (INVERTIBLE, {"X_grad_type": {"a": 1}}, "attribute X_grad_type is {'a': 1}; expected the name of a type"),
    ],
)
def test_a_value_that_the_contract_does_not_allow_is_refused(
    provider: FakeProvider, name: str, attributes: dict[str, Any], expected: str
) -> None:
    given = {**arguments(name), **attributes}
    for _ in range(2):  # the second call meets no plan that the first has left
        assert message(AttributeValueError, gradkern.run, name, **given) == f"{name}: {expected}"
    assert not provider.calls


def test_a_type_that_no_combination_has_is_refused_with_those_that_are(provider: FakeProvider) -> None:
    text = message(DTypeError, gradkern.run, INVERTIBLE, **arguments(INVERTIBLE), X_grad_type="int32")
    assert text.startswith(
        f"{INVERTIBLE}: the types G=float32, V=float32, U=float32, T=int32 are not registered together; registered are "
        "G=float32, T=float32, U=float32, V=float32; G=float64,"
    )


def test_equal_values_of_different_types_get_different_verdicts(provider: FakeProvider) -> None:
    gradkern.run(LAYER, **arguments(LAYER), axis=1)
    for value in (1.0, True):
        assert message(AttributeValueError, gradkern.run, LAYER, **arguments(LAYER), axis=value).endswith("an int")
    gradkern.run(DML, **arguments(DML, Epsilon=0.5))
    assert message(AttributeValueError, gradkern.run, DML, **arguments(DML, Epsilon=np.array(0.5))).endswith("a float")


def test_an_operator_without_attributes_takes_none(provider: FakeProvider) -> None:
    name = "BiasGeluGrad_dX"
    expected = f"{name}: unknown argument 'axis'; its attributes are none; its inputs are dY, X, B"
    assert message(ArgumentError, gradkern.run, name, **arguments(name), axis=1) == expected


# --- convolutions: attributes that must fit one another --------------------------------------------------------------


def conv(dY: tuple[int, ...], X: tuple[int, ...], W: tuple[int, ...], **attributes: Any) -> Any:
    arrays = (np.ones(shape, np.float32) for shape in (dY, X, W))
    return gradkern.run(CONV, *arrays, **attributes)


@pytest.mark.parametrize(
    ("attributes", "out", "pads"),
    [
        ({"auto_pad": "VALID"}, (4, 5), (0, 0, 0, 0)),
        ({"auto_pad": "SAME_UPPER"}, (6, 7), (1, 1, 1, 1)),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (3, 4), (0, 1, 1, 1)),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (3, 4), (1, 1, 0, 1)),
        ({"pads": [0, 1, 2, 3]}, (6, 9), (0, 1, 2, 3)),
        ({"dilations": [2, 3]}, (2, 1), (0, 0, 0, 0)),
    ],
)
def test_auto_pad_becomes_pads(
    provider: FakeProvider, attributes: dict[str, Any], out: tuple[int, int], pads: tuple[int, ...]
) -> None:
    conv((2, 4, *out), (2, 3, 6, 7), (4, 3, 3, 3), **attributes)
    assert provider.calls[0].attributes["pads"] == pads
    assert provider.calls[0].attributes["auto_pad"] == "NOTSET"


def test_pads_beside_auto_pad_are_refused(provider: FakeProvider) -> None:
    text = message(AttributeValueError, conv, (1, 1, 3), (1, 1, 3), (1, 1, 3), auto_pad="SAME_UPPER", pads=[1, 1])
    assert text == "ConvGrad: attribute pads is (1, 1) and auto_pad is SAME_UPPER; only one of them may be given"


def test_an_int_may_have_a_list_of_what_is_allowed(provider: FakeProvider) -> None:
    name: Any = "LayerNormalization"
    assert planned(provider, name, stash_type=1)["stash_type"] == 1
    expected = "LayerNormalization: attribute stash_type is 16; allowed are 1"
    assert message(AttributeValueError, gradkern.run, name, **arguments(name, stash_type=16)) == expected


def test_a_type_that_only_outputs_have_follows_from_the_others(provider: FakeProvider) -> None:
    name: Any = "SimplifiedLayerNormalization"
    for data, expected in (("float64", "float64"), ("bfloat16", "float32")):
        given = {each: np.ones(shape, data) for each, shape in (("X", (2, 3)), ("scale", (3,)))}
        assert run_any(name, **given).inv_std_var.dtype == expected


# --- numbers of more than 64 bits, and values that raise --------------------------------------------------------------

WIDE = [1 << 63, -(1 << 63) - 1, 1 << 64, 1 << 200, -(1 << 200), 10**5000]


@pytest.mark.parametrize("value", WIDE, ids=["2**63", "-2**63-1", "2**64", "2**200", "-2**200", "10**5000"])
@pytest.mark.parametrize("name", gradkern.operators())
def test_no_int_of_more_than_64_bits_comes_to_a_plan(provider: FakeProvider, name: str, value: int) -> None:
    """Of every attribute of every operator, alone and in a list."""
    for attribute, contract in gradkern.operators()[name].attributes.items():
        if contract.type not in ("int", "ints"):
            continue
        lists = [[value], (1, value), [1, 1, 1, value]] if contract.type == "ints" else [value]
        for given in lists:
            provider.calls.clear()
            with pytest.raises(
                AttributeValueError, match=rf"^{name}: attribute {attribute} is .*; expected a.* of 64 bits"
            ):
                run_any(name, **{**arguments(name), attribute: given})
            assert provider.calls == []


@pytest.mark.parametrize("value", [(1 << 63) - 1, 1 << 62])
def test_ints_of_64_bits_are_taken(provider: FakeProvider, value: int) -> None:
    assert planned(provider, CONV, dilations=(1, 1), group=1)["group"] == 1
    with pytest.raises(gradkern.GradkernError) as caught:
        run_any(LAYER, **{**arguments(LAYER), "axis": value})
    assert "64 bits" not in str(caught.value)


def raising(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("of the caller's own")


def hostile(base: type[Any], value: Any, **methods: Any) -> Any:
    return type("Hostile", (base,), methods)(value) if base is not object else type("Hostile", (), methods)()


TAKEN = {
    "an int without a hash": lambda: hostile(int, 1, __hash__=raising),
    "an int that compares with nothing": lambda: hostile(int, 1, __hash__=lambda self: 1, __eq__=raising),
    "an index without a hash": lambda: hostile(object, None, __hash__=raising, __index__=lambda self: 1),
    "an int without a repr": lambda: hostile(int, 1, __repr__=raising),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_a_value_that_cannot_be_a_key_is_taken_for_what_it_is(provider: FakeProvider, kind: str) -> None:
    """Its plan is made anew for every call."""
    for _ in range(2):
        value = TAKEN[kind]()
        taken = planned(provider, LAYER, axis=value)["axis"]
        assert (type(taken), taken) == (int, 1)
        pads = planned(provider, CONV, pads=[TAKEN[kind]() for _ in range(4)])["pads"]
        assert pads == (1, 1, 1, 1)


REFUSED = {
    "nothing but a hash that raises": lambda: hostile(object, None, __hash__=raising),
    "a repr that raises": lambda: hostile(object, None, __repr__=raising),
    "both": lambda: hostile(object, None, __hash__=raising, __repr__=raising, __str__=raising),
    "an index that raises": lambda: hostile(object, None, __index__=raising, __repr__=raising),
    "a list of such": lambda: [hostile(object, None, __hash__=raising, __repr__=raising)] * 4,
    "a tuple of such": lambda: (hostile(object, None, __hash__=raising),) * 4,
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize(
    ("name", "attribute"),
    [(LAYER, "axis"), (CONV, "pads"), (CONV, "auto_pad"), (DML, "Epsilon"), ("LayerNormalization", "stash_type")],
)
def test_what_a_value_raises_is_no_error_of_the_call(
    provider: FakeProvider, name: str, attribute: str, kind: str
) -> None:
    with pytest.raises(AttributeValueError, match=f"^{name}: attribute {attribute} is "):
        run_any(name, **{**arguments(name), attribute: REFUSED[kind]()})


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("argument", ["outputs", "provider", "policy", "domain", "version", "op"])
def test_nor_is_what_any_other_argument_raises(provider: FakeProvider, argument: str, kind: str) -> None:
    given = {"op": LAYER, **arguments(LAYER), argument: REFUSED[kind]()}
    with pytest.raises(gradkern.GradkernError):
        run_any(given.pop("op"), **given)


def test_a_policy_of_hostile_values_is_refused(provider: FakeProvider) -> None:
    for kind, make in REFUSED.items():
        for field in ("search", "allow_tf32", "workspace_limit", "kernel"):
            with pytest.raises(gradkern.PolicyError, match=f"policy: {field} is "):
                run_any(LAYER, **{**arguments(LAYER), "policy": {field: make()}})
            assert kind
