"""Both passes of batch norm's kernel under the CUDA simulator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.batch_norm import OUTPUTS, Case, case
from helpers.simulate_batch_norm import simulate

from gradkern.cuda.device_code import intrinsics

b, h, f, d = "bfloat16", "float16", "float32", "float64"


def check(operands: Case, **how: Any) -> None:
    operands.check(simulate(operands, **how))


@pytest.mark.parametrize(
    ("sizes", "dtype", "how"),
    [
        ((4, 3, 5, 8), f, {"width": 4}),  # planes of whole vectors
        ((6, 3, 8, 16), h, {"width": 8, "vectors": 2}),
        ((4, 3, 5, 7), b, {"width": 8}),  # vectors that two planes share
        ((70, 24), b, {"width": 8}),  # columns, several rows at once
        ((3, 24, 5, 5), h, {"width": 8, "last": True}),
        ((6, 700), b, {"width": 8}),  # several tiles a row
        ((3, 5, 3, 3), f, {"width": 4, "last": True}),  # vectors that two rows share
        ((2, 3, 11, 31), b, {"width": 8}),  # fewer images than make whole vectors
        ((1, 12, 5, 5), h, {"width": 8}),
        ((5, 1, 7, 3), f, {"width": 4}),  # one channel
        ((5, 2, 1200), f, {"width": 4}),  # planes large enough to be inner arrays
        ((2, 3, 2, 3, 2, 4), f, {"width": 4}),
        ((1, 12), f, {"width": 4}),  # a channel has one element
        ((1, 1), d, {"width": 1, "source": "plain"}),
        ((9, 11), d, {"width": 1, "offset": 1}),
        ((4, 3, 5, 8), b, {"width": 1, "source": "plain", "offset": 1}),
        ((9, 6, 16), f, {"width": 4, "source": "plain", "threads": 64, "vectors": 2, "native_bfloat16": False}),
    ],
    ids=str,
)
def test_every_order_of_axes(sizes: tuple[int, ...], dtype: str, how: dict[str, Any]) -> None:
    check(case(sizes, dtype), **how)


@pytest.mark.parametrize("blocks", [1, 3, 7])
@pytest.mark.parametrize("sizes", [(9, 5, 12), (9, 40), (3, 2, 700)], ids=str)
def test_blocks_with_many_items_with_few_and_with_none(sizes: tuple[int, ...], blocks: int) -> None:
    check(case(sizes, f), width=4, blocks=blocks)


@pytest.mark.parametrize(
    ("sizes", "held_rows"),
    [
        *product([(9, 5, 12), (70, 24), (40, 3, 7), (3, 5, 2)], [1, 5]),
        ((2, 2, 1201), 20),
        *(
            pytest.param(sizes, rows, marks=pytest.mark.every_kernel)
            for sizes, rows in [
                *product([(9, 5, 12), (70, 24), (40, 3, 7), (3, 5, 2)], [2, 20]),
                *product([(2, 2, 1201)], [1, 2, 5]),
            ]
        ),
    ],
    ids=str,
)
def test_rows_that_the_first_pass_leaves_on_the_chip_are_used(sizes: tuple[int, ...], held_rows: int) -> None:
    check(case(sizes, f), width=4, held_rows=held_rows, stages=3)
    check(case(sizes, f), width=4, held_rows=held_rows, stages=2, blocks=3, in_place="X")


@pytest.mark.parametrize("sizes", [(16, 4, 32), pytest.param((80, 32), marks=pytest.mark.every_kernel)], ids=str)
def test_and_not_read_again(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    copies, make = 0, intrinsics.async_copy

    def counted(size: int) -> Callable[..., None]:
        copy = make(size)

        def count(target: int, source: int) -> None:
            nonlocal copies
            with lock:
                copies += 1
            copy(target, source)

        return count

    def copied(**how: Any) -> int:
        nonlocal copies
        copies = 0
        check(case(sizes, f), width=4, **how)
        return copies

    lock = threading.Lock()
    monkeypatch.setattr(intrinsics, "async_copy", counted)
    once = copied(outputs=OUTPUTS[1:])
    assert once == 2 * np.prod(sizes) // 4  # vectors of X and of dY
    assert copied() == 2 * once
    assert once < copied(held_rows=1) < copied() - 2 * 32  # a row is as many vectors as a block has threads
    assert copied(held_rows=100) == once


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("types", [(h, h, f), (h, f, f), (b, f, f), (b, b, f), (b, b, b), (h, h, h)], ids=" ".join)
def test_every_combination_of_types(types: tuple[str, str, str], last: bool) -> None:
    check(case((5, 16, 2, 4), *types), width=8, last=last)


@pytest.mark.parametrize(
    "outputs", [OUTPUTS[:1], OUTPUTS[1:2], OUTPUTS[2:], OUTPUTS[1:], OUTPUTS[::2], OUTPUTS[:2]], ids=" ".join
)
@pytest.mark.parametrize("sizes", [(4, 3, 16), (4, 3, 7)], ids=str)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    check(case(sizes, h), width=8, outputs=outputs)


@pytest.mark.parametrize("source", ["dY", "X"])
def test_dX_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(case((9, 5, 12), f), width=4, in_place=source, blocks=3)


@pytest.mark.parametrize("counts", [(), pytest.param((112,), marks=pytest.mark.every_kernel), (80, 0, 32)], ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_a_batch_in_two_parts_has_the_gradient_of_the_whole(last: bool, counts: tuple[int, ...]) -> None:
    whole = case((7, 6, 4, 4), f)
    parts = [Case({**whole.inputs, **{name: whole.inputs[name][each] for name in ("dY", "X")}})
             for each in (slice(0, 5), slice(5, 7))]  # fmt: skip
    sums = [simulate(part, 4, outputs=OUTPUTS[1:], last=last) for part in parts]
    dScale, dBias = (np.asarray(sum(each[name] for each in sums)) for name in OUTPUTS[1:])
    share = (dScale, dBias, 0 if counts else 7 * 16)
    halves = [simulate(part, 4, outputs=OUTPUTS[:1], last=last, share=share, counts=counts) for part in parts]
    dX = np.concatenate([each["dX"] for each in halves])
    whole.check({"dX": dX, "dScale": dScale, "dBias": dBias})


@pytest.mark.parametrize("last", [False, True])
def test_a_mean_far_from_zero_costs_no_digits(last: bool) -> None:
    check(case((40, 4, 8), f, far=3000), width=4, last=last)


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's remark on the infinite less the infinite
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("sizes", [(4, 3, 16), (4, 3, 7)], ids=str)
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float, sizes: tuple[int, ...]) -> None:
    operands = case(sizes, f)
    operands.inputs["dY"][2, 1, 3] = value
    operands.inputs["X"][1, 2, 5] = value
    check(operands, width=4)
