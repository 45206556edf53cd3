"""Batch norm's gradient in two steps, over a batch in parts: what synchronised batch norm is built on."""

import doctest
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from helpers.calls import message, prepare_any, run_any
from helpers.examples import bits
from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

import gradkern
from gradkern.ops import batch_norm

pytestmark = pytest.mark.thorough

WHOLE, SUMS, FROM_SUMS = "BatchNormalizationGrad", "BatchNormalizationGradSums", "BatchNormalizationGradFromSums"
OPERATORS = gradkern.operators()
TYPES = OPERATORS[FROM_SUMS].combinations
Arrays = dict[str, np.ndarray]

every_type = pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(types.values()))


def batch(types: Mapping[str, str], shape: tuple[int, ...], order: str = "C", shift: float = 0.0) -> Arrays:
    """Inputs of the gradient over a whole batch, with its own statistics."""
    random = np.random.default_rng(3)
    dY, X = (random.standard_normal(shape) + shift for _ in range(2))
    if order == "channels last":
        dY, X = (np.moveaxis(np.ascontiguousarray(np.moveaxis(each, 1, -1)), -1, 1) for each in (dY, X))
    others = (0, *range(2, X.ndim))
    inputs = {"dY": dY, "X": X, "Scale": random.standard_normal(shape[1])}
    inputs |= {"saved_mean": X.mean(others), "saved_inv_std": 1 / np.sqrt(X.var(others) + 1e-5)}
    variables = {each.name: each.type for each in OPERATORS[FROM_SUMS].inputs}
    return {name: array.astype(types[variables[name]]) for name, array in inputs.items()}


def in_parts(inputs: Arrays, sizes: list[int]) -> tuple[np.ndarray, Arrays]:
    """dX of the parts, joined, and the sums over all: each part goes its way as on a device of its own."""
    data, statistics = ("dY", "X"), ("saved_mean", "saved_inv_std")
    cuts = np.cumsum(sizes)[:-1]
    parts = [
        {**inputs, **dict(zip(data, arrays, strict=True))}
        for arrays in zip(*(np.split(inputs[name], cuts) for name in data), strict=True)
    ]
    shares = [gradkern.run(SUMS, **{name: part[name] for name in (*data, *statistics)}) for part in parts]
    sums = {name: np.asarray(sum(getattr(share, name) for share in shares)) for name in ("dScale", "dBias")}
    count = inputs["X"].size // inputs["X"].shape[1]
    dX = [run_any(FROM_SUMS, **part, **sums, count=count).dX for part in parts]
    channels = inputs["X"].shape[1]
    counts = np.array([part["X"].size // channels for part in parts], inputs["saved_mean"].dtype)
    told = [run_any(FROM_SUMS, **part, **sums, counts=counts).dX for part in parts]
    for one, other in zip(dX, told, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))
    return np.concatenate(dX), sums


@every_type
@pytest.mark.parametrize("sizes", [[8], [4, 4], [5, 3], [1, 2, 5], [0, 8]], ids=str)
@pytest.mark.parametrize(
    ("spatial", "order"), [((7, 9), "C"), ((7, 9), "channels last"), ((), "C"), ((65,), "C"), ((3, 4, 5), "C")], ids=str
)
def test_a_batch_in_parts_has_the_gradients_of_the_whole(
    types: dict[str, str], sizes: list[int], spatial: tuple[int, ...], order: str
) -> None:
    inputs = batch(types, (8, 66, *spatial), order)
    dX, sums = in_parts(inputs, sizes)
    expected = reference(WHOLE, inputs)
    assert_close(FROM_SUMS, "dX", dX, expected["dX"])
    assert_elements_close(FROM_SUMS, "dX", dX, expected["dX"])
    for name, total in sums.items():
        assert total.dtype.name == types["T2"]
        assert_close(SUMS, name, total, expected[name])


@every_type
def test_one_part_has_the_bits_that_the_gradient_in_one_step_has(types: dict[str, str]) -> None:
    """The kernels are the same, and with sums that are exact so is what they get."""
    inputs = batch(types, (4, 5, 6))
    for name in ("dY", "X", "saved_mean"):
        inputs[name] = np.round(inputs[name].astype(np.float32)).astype(inputs[name].dtype)
    inputs["saved_inv_std"][...] = 0.5
    dX, _ = in_parts(inputs, [4])
    np.testing.assert_array_equal(bits(dX), bits(run_any(WHOLE, **inputs, outputs="dX").dX))


@pytest.mark.parametrize("order", ["C", "channels last"])
def test_sums_that_float16_cannot_hold_are_not_lost(order: str) -> None:
    types = {"T": "float16", "T1": "float16", "T2": "float32"}
    inputs = batch(types, (8, 3, 100, 100), order, shift=4.0)
    assert np.isinf(run_any(WHOLE, **inputs).dBias).all()
    dX, sums = in_parts(inputs, [4, 4])
    expected = reference(WHOLE, inputs)
    assert (sums["dBias"] > 1e5).all()
    assert_close(SUMS, "dBias", sums["dBias"], expected["dBias"])
    assert_close(FROM_SUMS, "dX", dX, expected["dX"])


def test_the_sums_may_be_rows_of_one_array_for_one_reduction() -> None:
    inputs = batch(TYPES[0], (4, 5, 6))
    without_scale = {name: array for name, array in inputs.items() if name != "Scale"}
    sums = np.empty((2, 5), np.float32)
    run_any(SUMS, **without_scale, out={"dScale": sums[0], "dBias": sums[1]})
    dX = gradkern.run(FROM_SUMS, *inputs.values(), *sums, count=24).dX
    assert_close(FROM_SUMS, "dX", dX, reference(WHOLE, inputs)["dX"])


@pytest.mark.torch
def test_parts_of_pytorch_tensors_have_the_gradients_of_pytorch_s_batch_norm() -> None:
    import torch

    torch.manual_seed(0)
    X, dY = torch.randn(2, 6, 5, 4, 3, dtype=torch.float64)
    scale, bias = torch.randn(2, 5, dtype=torch.float64)
    leaves = [each.clone().requires_grad_() for each in (X, scale, bias)]
    Y = torch.nn.functional.batch_norm(leaves[0], None, None, leaves[1], leaves[2], training=True, eps=1e-5)
    expected = torch.autograd.grad(Y, leaves, dY)

    statistics = X.mean((0, 2, 3)), 1 / torch.sqrt(X.var((0, 2, 3), correction=0) + 1e-5)
    sums = torch.empty(2, 2, 5, dtype=torch.float64)
    parts = list(zip(dY.split([2, 4]), X.split([2, 4]), sums, strict=True))
    for *part, (dScale, dBias) in parts:
        run_any(SUMS, *part, *statistics, out={"dScale": dScale, "dBias": dBias})
    reduced = sums.sum(0)
    dX = torch.cat([run_any(FROM_SUMS, *part, scale, *statistics, *reduced, count=72).dX for *part, _ in parts])
    for name, mine, theirs in zip(("dX", "dScale", "dBias"), (dX, *reduced), expected, strict=True):
        assert_close(FROM_SUMS, name, mine.numpy(), theirs.numpy())


def test_the_count_may_be_any_that_holds_the_part() -> None:
    inputs = batch(TYPES[1], (4, 5, 6)) | {"dScale": np.arange(5.0), "dBias": np.ones(5)}
    for count in (24, 25, 2**40, 2**63 - 1):
        dX = run_any(FROM_SUMS, **inputs, count=count).dX
        assert_close(FROM_SUMS, "dX", dX, reference(FROM_SUMS, inputs, {"count": count})["dX"])


def test_a_whole_batch_of_nothing_has_empty_gradients_and_a_count_of_zero() -> None:
    inputs = {name: array[:0] if array.ndim > 1 else array for name, array in batch(TYPES[0], (4, 5, 6)).items()}
    ones = np.ones(5, np.float32)
    dX = run_any(FROM_SUMS, **inputs, dScale=ones, dBias=ones, count=0).dX
    assert dX.shape == (0, 5, 6)


OF_A_PART = "expected 24 to 9223372036854775807, as X alone has 24 elements of each channel"


@pytest.mark.parametrize(
    ("count", "expected"), [(23, OF_A_PART), (0, OF_A_PART), (2**63, "expected an int of 64 bits")]
)
def test_a_count_that_the_batch_cannot_have_is_refused(count: int, expected: str) -> None:
    inputs = batch(TYPES[0], (4, 5, 6))
    ones = np.ones(5, np.float32)
    call = {**inputs, "dScale": ones, "dBias": ones, "count": count}
    assert message(gradkern.AttributeValueError, gradkern.run, FROM_SUMS, **call) == (
        f"BatchNormalizationGradFromSums: attribute count is {count}; {expected}"
    )


@pytest.mark.parametrize(
    ("given", "came"), [({}, "neither is given"), ({"count": 24, "counts": np.ones(1, np.float32)}, "both are given")]
)
def test_a_batch_s_size_is_told_once(given: dict[str, object], came: str) -> None:
    inputs = batch(TYPES[0], (4, 5, 6))
    ones = np.ones(5, np.float32)
    assert message(
        gradkern.AttributeValueError, gradkern.run, FROM_SUMS, **inputs, dScale=ones, dBias=ones, **given
    ) == (
        f"BatchNormalizationGradFromSums: attribute count and input counts stand for one another; expected one, {came}"
    )


def test_one_plan_serves_batches_of_every_size() -> None:
    inputs = batch(TYPES[1], (4, 5, 6)) | {"dScale": np.arange(5.0), "dBias": np.ones(5)}
    plan: Any = prepare_any(FROM_SUMS, **inputs, counts=np.array([24.0, 0]))
    for counts in ([24, 0], [24, 7], [1e12, 24]):
        given = inputs | {"counts": np.array(counts, float)}
        assert_close(FROM_SUMS, "dX", plan(**given).dX, reference(FROM_SUMS, given)["dX"])


def test_sums_that_were_rounded_to_16_bits_are_refused() -> None:
    inputs = batch({"T": "float16", "T1": "float16", "T2": "float32"}, (4, 5, 6))
    rounded = run_any(WHOLE, **inputs)
    sums = {"dScale": rounded.dScale, "dBias": rounded.dBias}
    assert message(gradkern.DTypeError, gradkern.run, FROM_SUMS, **inputs, **sums, count=24) == (
        "BatchNormalizationGradFromSums: input dScale has type float16; T2 allows float32, float64; "
        "convert it to float32, which loses nothing"
    )


def test_the_documentation_s_example_gives_what_it_says() -> None:
    failed, tried = doctest.testmod(batch_norm)
    assert (failed, tried > 10) == (0, True)
