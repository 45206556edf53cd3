"""Types and `out` arrays against the contract, and the text of every refusal. Nothing is written before the check."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.calls import OPERATORS, FakeProvider, arguments, message, run_any

import gradkern
from gradkern import DTypeError, OutputError
from gradkern.contract.check import scattered_outputs

LAYER, GELU, CONV, BATCH = "LayerNormalizationGrad", "BiasGeluGrad_dX", "ConvGrad", "BatchNormalizationGrad"
PAIRS = [(name, *pair) for name, operator in OPERATORS.items() for pair in sorted(operator.in_place_pairs)]


# --- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OPERATORS))
def test_exactly_the_registered_combinations_of_types_are_taken(provider: FakeProvider, name: str) -> None:
    operator = OPERATORS[name]
    bound = [key for key, each in operator.attributes.items() if each.binds]
    for row in operator.combinations:
        given = arguments(name)
        for each in operator.inputs_of(operator.examples[0].axes):
            given[each.name] = given[each.name].astype(row[each.type])
        given.update({key: row[str(operator.attributes[key].binds)] for key in bound})
        result = run_any(name, **given)
        for each, array in zip([each for each in operator.outputs if not each.appended], result, strict=True):
            assert array is None or array.dtype.name == row[each.type]


@pytest.mark.parametrize(
    ("name", "types", "expected"),
    [
        (CONV, {"W": np.int32}, "input W has type int32; T allows float32, float64, float16, bfloat16"),
        (CONV, {"dY": "?"}, "input dY has type bool; T allows float32, float64, float16, bfloat16"),
        (CONV, {"dY": object}, "input dY has type object; T allows float32, float64, float16, bfloat16"),
        (CONV, {"X": np.float64}, "input X has type float64, but input dY has float32; both are of type T"),
        (
            CONV,
            {"dY": ml_dtypes.float8_e5m2},
            "input dY has type float8_e5m2; T allows float32, float64, float16, bfloat16",
        ),
        (
            BATCH,
            {"saved_mean": np.complex64},
            "input saved_mean has type complex64; T2 allows float32, float64, float16, bfloat16",
        ),
        (
            LAYER,
            {"mean": np.float16},
            "input mean has type float16; U allows float32, float64; convert it to float32, which loses nothing",
        ),
        (CONV, {"X": ">f4"}, "input X has type float32 in foreign byte order; expected the machine's own"),
        (
            GELU,
            {"B": np.float64},
            "the types T=float32, TB=float64 are not registered together; registered are T=float32, TB=float32; "
            "T=float64, TB=float64; T=float16, TB=float16; T=float16, TB=float32; T=bfloat16, TB=bfloat16; "
            "T=bfloat16, TB=float32",
        ),
    ],
)
def test_types_that_are_not_registered_are_refused(
    provider: FakeProvider, name: str, types: dict[str, Any], expected: str
) -> None:
    given = arguments(name)
    for key, dtype in types.items():
        given[key] = np.zeros(given[key].shape, dtype)
    assert message(DTypeError, gradkern.run, name, **given) == f"{name}: {expected}"
    assert not provider.calls


# --- out -------------------------------------------------------------------------------------------------------------


def gelu(out: dict[str, Any], **changes: Any) -> Any:
    return run_any(GELU, **arguments(GELU, **changes), out=out)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (np.zeros((6, 40), np.float64), "out dX has type float64; expected float32"),
        (np.zeros((6, 40), ">f4"), "out dX has type float32 in foreign byte order; expected float32"),
        (np.zeros((40, 6), np.float32), "out dX has shape (40, 6); expected (6, 40)"),
        (np.zeros((1, 6, 40), np.float32), "out dX has shape (1, 6, 40); expected (6, 40)"),
        (read_only(np.zeros((6, 40), np.float32)), "out dX is read-only"),
        (
            np.lib.stride_tricks.as_strided(np.zeros(40, np.float32), (6, 40), (0, 4)),
            "out dX has strides (0, 4), by which its elements share memory",
        ),
        (
            np.lib.stride_tricks.as_strided(np.zeros(80, np.float32), (6, 40), (4, 4)),
            "out dX has strides (4, 4), by which its elements share memory",
        ),
    ],
)
def test_an_out_array_that_cannot_take_the_result_is_refused_and_stays_as_it_was(
    provider: FakeProvider, out: np.ndarray, expected: str
) -> None:
    assert message(OutputError, gelu, {"dX": out}) == f"{GELU}: {expected}"
    assert not out.any()


def test_an_out_array_may_have_any_strides_by_which_no_elements_share_memory(provider: FakeProvider) -> None:
    channels_last = {
        key: np.moveaxis(np.ones((2, 9, 8, count), np.float32), -1, 1) for key, count in (("X", 6), ("dY", 4))
    }
    given = {**arguments(CONV), **channels_last}
    wide = np.empty((2, 6, 9, 16), np.float32)
    turned = np.empty((2, 6, 8, 9), np.float32).transpose(0, 1, 3, 2)
    dense = np.empty_like(given["X"]), np.empty(given["X"].shape, np.float32)
    for out in (*dense, wide[..., ::2], wide[..., 8:], wide[:, ::-1, :, 7::-1], turned):
        assert gradkern.run(CONV, **given, out={"dX": out}).dX is out
    gaps = [scattered_outputs(OPERATORS[CONV], call) for call in provider.calls]
    assert gaps == [(), (), ("dX",), ("dX",), ("dX",), ("dX",)]


def test_a_read_only_array_is_refused_after_a_writable_one_of_the_same_signature_was_taken(
    provider: FakeProvider,
) -> None:
    out = np.zeros((6, 40), np.float32)
    gelu({"dX": out})
    out[...] = 0
    assert message(OutputError, gelu, {"dX": read_only(out)}) == f"{GELU}: out dX is read-only"
    assert not out.any()


@pytest.mark.parametrize(("name", "source", "target"), PAIRS)
def test_an_input_may_be_written_over_where_the_contract_permits_it(
    provider: FakeProvider, name: str, source: str, target: str
) -> None:
    given = arguments(name)
    if source not in given:  # one that is not given by default
        given[source] = np.ones_like(given["X"] if "X" in given else getattr(run_any(name, **given), target))
    result = run_any(name, **given, out={target: given[source]})
    assert getattr(result, target) is given[source]
    assert provider.calls[-1].in_place == {(source, target)}


def test_in_place_may_have_any_strides(provider: FakeProvider) -> None:
    given = arguments(GELU)
    given["X"] = np.ones((12, 80), np.float32)[::-2, ::2]
    assert gradkern.run(GELU, **given, out={"dX": given["X"]}).dX is given["X"]


def test_an_array_that_is_two_inputs_may_be_the_output_where_both_are_permitted(provider: FakeProvider) -> None:
    given = arguments(GELU)
    given["dY"] = given["X"]
    gradkern.run(GELU, **given, out={"dX": given["X"]})
    assert provider.calls[0].in_place == {("dY", "dX"), ("X", "dX")}


@pytest.mark.parametrize(
    ("name", "target", "source", "expected"),
    [
        (CONV, "dX", "X", "out dX is the array of input X; it may be that of no input"),
        (GELU, "dB", "B", "out dB is the array of input B; it may be that of no input"),
        (LAYER, "bias_grad", "scale", "out bias_grad is the array of input scale; it may be that of no input"),
    ],
)
def test_an_input_is_not_written_over_where_the_contract_does_not_permit_it(
    provider: FakeProvider, name: str, target: str, source: str, expected: str
) -> None:
    given = arguments(name)
    assert message(OutputError, gradkern.run, name, **given, out={target: given[source]}) == f"{name}: {expected}"


def test_the_refusal_says_which_inputs_an_output_may_take_the_place_of(provider: FakeProvider) -> None:
    Y_grad, X, scale, mean, inv_std_dev = (np.ones(shape, np.float32) for shape in ((1, 1), (1, 1), 1, (1, 1), 1))
    call = (LAYER, Y_grad, X, scale, mean, inv_std_dev)
    assert message(OutputError, gradkern.run, *call, out={"X_grad": mean}) == (
        f"{LAYER}: out X_grad is the array of input mean; it may be that of X or Y_grad or residual_grad"
    )


@pytest.mark.parametrize(
    "taken",
    [
        lambda memory: memory[1:7],
        lambda memory: memory[5::-1],
        lambda memory: memory[:6].view(np.int32).view(np.float32)[::-1],
        lambda memory: memory.reshape(-1)[20:260].reshape(6, 40),
    ],
    ids=["shifted", "backwards", "another view", "half a row on"],
)
def test_any_other_overlap_with_an_input_is_refused(provider: FakeProvider, taken: Any) -> None:
    memory = np.zeros((12, 40), np.float32)
    expected = f"{GELU}: out dX overlaps input X without being that array"
    assert message(OutputError, gelu, {"dX": taken(memory)}, X=memory[:6]) == expected
    assert not memory.any()


def test_an_overlap_is_found_when_the_plan_is_warm(provider: FakeProvider) -> None:
    memory = np.zeros((12, 40), np.float32)
    gelu({"dX": memory[6:]}, X=memory[:6])
    expected = f"{GELU}: out dX overlaps input X without being that array"
    assert message(OutputError, gelu, {"dX": memory[1:7]}, X=memory[:6]) == expected


def test_arrays_that_interleave_without_a_common_byte_do_not_overlap(provider: FakeProvider) -> None:
    memory = np.zeros((2, 6, 40), np.float32)
    swapped = np.zeros((6, 80), np.float32)
    assert gelu({"dX": memory[1]}, X=memory[0]).dX is not None
    assert gelu({"dX": np.zeros((6, 40), np.float32)}, X=swapped[:, 1::2], dY=swapped[:, ::2]).dX is not None


def test_two_outputs_may_not_share_memory(provider: FakeProvider) -> None:
    given = arguments(LAYER)
    memory = np.zeros(60, np.float32)
    one, two = memory[:40], memory[20:]
    assert message(OutputError, gradkern.run, LAYER, **given, out={"scale_grad": one, "bias_grad": two}) == (
        f"{LAYER}: out bias_grad overlaps out scale_grad"
    )
    assert message(OutputError, gradkern.run, LAYER, **given, out={"scale_grad": one, "bias_grad": one}) == (
        f"{LAYER}: out bias_grad overlaps out scale_grad"
    )


def test_empty_arrays_overlap_nothing(provider: FakeProvider) -> None:
    empty = np.zeros((0, 40), np.float32)
    assert gelu({"dX": empty}, dY=empty, X=empty).dX is empty
