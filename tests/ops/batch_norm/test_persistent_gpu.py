"""Batch norm's persistent kernel on a GPU: every type and edge, in guarded memory."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.batch_norm import OUTPUTS, case
from helpers.batch_norm_on_gpu import check, check_a_replay, check_the_bits_repeat

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
TYPES = [(f, f, f), (d, d, d), (h, h, h), (h, h, f), (h, f, f), (b, f, f), (b, b, f), (b, b, b)]
SHAPES = [  # and slices
    ((64, 40, 56, 56), 4),
    ((64, 40, 56, 56), 8),
    ((32, 300, 28, 28), 1),
    ((32, 300, 28, 28), 2),
    ((64, 96, 14, 14), 1),  # two channels at once
    ((33, 200, 7, 7), 2),  # eight
    ((5, 3, 100, 104), 2),  # the last slice has fewer images
    ((67, 7, 64, 64), 8),
    ((4, 8, 5, 16, 16), 1),
    ((150, 2, 40, 32), 8),
    ((9, 45, 30, 30), 2),  # images begin anywhere within a unit
    ((33, 203, 7, 7), 1),  # single elements, and the last group is smaller
    ((40, 131, 13, 13), 2),  # planes begin anywhere
    ((3, 67, 59, 61), 1),
    ((64, 24, 35, 35), 4),
    ((61, 13, 97, 97), 16),
    ((17, 35, 25, 25, 25), 8),  # blocks with three images, and with two
    ((1, 1001, 63, 63), 1),  # four channels at once, and one
]


@pytest.fixture(autouse=True)
def _clusters() -> None:
    from gradkern.cuda.device import get_device

    if get_device(0).capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")


@pytest.mark.parametrize(("sizes", "cluster_size"), SHAPES, ids=str)
def test_every_shape(sizes: tuple[int, ...], cluster_size: int) -> None:
    check(case(sizes, b, b, f), cluster_size=cluster_size)


@pytest.mark.parametrize("types", TYPES, ids=" ".join)
@pytest.mark.parametrize("sizes", [(16, 64, 28, 28), (40, 16, 7, 7), (8, 21, 33, 35)], ids=str)
def test_every_combination_of_types(sizes: tuple[int, ...], types: tuple[str, str, str]) -> None:
    check(case(sizes, *types), cluster_size=2)


@pytest.mark.parametrize("outputs", [OUTPUTS[:1], OUTPUTS[::2], OUTPUTS[:2]], ids=" ".join)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(case((16, 64, 28, 28), h, f, f), outputs=outputs, cluster_size=1)


@pytest.mark.parametrize(
    ("sizes", "cluster_size"), [((64, 64, 56, 56), 4), ((64, 64, 56, 56), 8), ((5, 67, 59, 61), 1)]
)
@pytest.mark.parametrize("source", ["dY", "X"])
def test_dX_may_be_written_over_what_it_is_made_from(source: str, sizes: tuple[int, ...], cluster_size: int) -> None:
    check(case(sizes, b, f, f), in_place=source, cluster_size=cluster_size)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    check(case((20, 64, 28, 28), f, far=3000), cluster_size=1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("sizes", [(20, 64, 28, 28), (20, 64, 29, 27)], ids=str)
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float, sizes: tuple[int, ...]) -> None:
    operands = case(sizes, f)
    operands.inputs["dY"][7, 11, 3, 2] = value
    operands.inputs["X"][8, 12, 4, 1] = value
    check(operands, cluster_size=2)


@pytest.mark.parametrize(
    ("sizes", "cluster_size"), [((33, 200, 7, 7), 1), ((64, 64, 56, 56), 8), ((64, 24, 35, 35), 4)], ids=str
)
def test_a_hundred_runs_give_the_same_bits(sizes: tuple[int, ...], cluster_size: int) -> None:
    check_the_bits_repeat(case(sizes, b, f, f), cluster_size=cluster_size)


def test_a_capture_replays() -> None:
    check_a_replay(case((20, 64, 28, 28), b, f, f), cluster_size=2)
