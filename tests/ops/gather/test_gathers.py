"""Gathers' gradients on the CPU: what is refused, and sums that are added to a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import message, run_any
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern import AttributeValueError, DataError, ShapeError

ones = np.ones


@pytest.mark.parametrize(
    ("error", "says", "name", "given"),
    [
        (DataError, "1 numbers out of range, the first 4 at 2; expected -4 to 3", "GatherGrad", ([4, 3], [0, -4, 4])),
        (DataError, "the first -5 at 0; expected -4 to 3", "GatherGrad", ([4, 3], [-5, 1, 2])),
        (DataError, "the first 0 at 0; expected 0 to -1", "GatherGrad", ([0, 3], [0, 0, 0])),
    ],
)
def test_an_index_out_of_range_is_refused(error: type[Exception], says: str, name: str, given: Any) -> None:
    shape, indices = given
    assert says in message(error, run_any, name, shape, np.array(indices), ones((3, 3)))


def test_sizes_that_no_gather_has_are_refused() -> None:
    index = np.zeros((2, 3), np.int64)
    says = message(ShapeError, run_any, "GatherElementsGrad", ones((2, 3)), [4, 2], index, axis=0)
    assert "inner dimensions (3,); expected at most (2,)" in says
    says = message(AttributeValueError, run_any, "GatherGrad", [4, 3], index[0], ones((3, 3)), padding_idx=4)
    assert "padding_idx is 4; expected -4 to 3" in says


@pytest.mark.parametrize(
    ("error", "says", "changes"),
    [
        (ShapeError, "expected (3, 5)", {"starts": [1], "ends": [9]}),
        (DataError, "steps is (0,)", {"steps": [0]}),
        (DataError, "axes is (2,)", {"axes": [2]}),
        (DataError, "axes is (1, -1)", {"axes": [1, -1], "starts": [0, 0], "ends": [1, 1]}),
    ],
)
def test_slices_that_are_none_are_refused(error: type[Exception], says: str, changes: dict[str, Any]) -> None:
    given = {"shape": [4, 5], "starts": [0], "ends": [2], **changes}
    assert says in message(error, run_any, "SliceGrad", ones((2, 5)), **given)


@pytest.mark.parametrize(
    ("error", "says", "changes"),
    [
        (ShapeError, "the window ends at (5, 4), outside of OutputGradient", {"InputWindowOffsets": [2, 1]}),
        (ShapeError, "InputGradient has shape (2, 3); expected (3, 3)", {"InputWindowStrides": [-1, 1]}),
        (AttributeValueError, "InputWindowStrides is (2, 0)", {"InputWindowStrides": [2, 0]}),
    ],
)
def test_windows_that_are_none_are_refused(error: type[Exception], says: str, changes: dict[str, Any]) -> None:
    given = {"InputWindowOffsets": [0, 1], "InputWindowSizes": [3, 3], "InputWindowStrides": [2, 1]}
    given |= {"OutputSizes": [4, 5], **changes}
    assert says in message(error, run_any, "DmlSliceGrad", ones((2, 3)), **given)


def test_a_window_of_nothing_read_backwards_is_empty() -> None:
    given = {"InputWindowOffsets": [0, 1], "InputWindowSizes": [0, 3], "InputWindowStrides": [-1, 1]}
    found = run_any("DmlSliceGrad", ones((0, 3)), **given, OutputSizes=[4, 5]).OutputGradient
    np.testing.assert_array_equal(found, np.zeros((4, 5)))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("gaps", [False, True])
def test_sums_are_added_to_a_gradient_in_its_memory(dtype: str, gaps: bool) -> None:
    random = np.random.default_rng(0)
    held = random.standard_normal((9, 8)).astype(dtype)
    inputs = {"indices": random.integers(-9, 9, 40), "dY": random.standard_normal((40, 8)).astype(dtype)}
    expected = reference("GatherGrad", {**inputs, "accumulator": held}, {"shape": [9, 8]})["dX"]
    accumulator = np.repeat(held, 2, axis=1)[:, ::2] if gaps else held.copy()
    found = run_any("GatherGrad", [9, 8], *inputs.values(), accumulator).dX
    assert found is accumulator
    assert_close("GatherGrad", "dX", found, expected)


def test_sums_of_16_bits_are_rounded_once() -> None:
    """1000 times 1 in sums of bfloat16 is 256."""
    index, dY = np.zeros(1000, np.int32), ones((1000, 4), "bfloat16")
    np.testing.assert_array_equal(run_any("GatherGrad", [2, 4], index, dY).dX.astype(float), [[1000] * 4, [0] * 4])


@pytest.mark.parametrize(
    ("bounds", "read"),
    [
        ((-9, -20, -1), [0]),
        ((4, -9, -1), [4, 3, 2, 1, 0]),
        ((9, -20, -2), [4, 2, 0]),
        ((-9, 9, 2), [0, 2, 4]),
        ((7, 9, 1), []),
    ],
)
def test_slices_that_reach_beyond_an_end_read_what_onnx_runtime_reads(bounds: Any, read: list[int]) -> None:
    """As ONNX Runtime 1.19.2 printed it: a start before the first element is the first, also backwards."""
    start, end, step = ([each] for each in bounds)
    dY = 1.0 + np.arange(len(read))
    expected = np.zeros(5)
    expected[read] = dY
    found = run_any("SliceGrad", dY, shape=[5], starts=start, ends=end, axes=[0], steps=step).dX
    np.testing.assert_array_equal(found, expected)
