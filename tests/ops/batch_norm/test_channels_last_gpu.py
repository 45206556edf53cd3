"""Batch norm's persistent kernel of channels-last arrays on a GPU: every type and edge, in guarded memory."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.batch_norm import OUTPUTS, case
from helpers.batch_norm_activation import backward
from helpers.batch_norm_on_gpu import check, check_a_replay, check_the_bits_repeat

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
TYPES = [(f, f, f), (d, d, d), (h, h, h), (h, h, f), (h, f, f), (b, f, f), (b, b, f), (b, b, b)]
SHAPES = [  # and slices, vectors
    ((12, 448, 10), 1, 2),
    ((12, 448, 10), 2, 4),
    ((64, 2048, 7, 7), 2, 4),
    ((64, 2048, 7, 7), 16, 20),  # more items than clusters
    ((8192, 1024), 8, 6),
    ((256, 2048, 7, 7), 16, 8),  # many more
    ((32, 512, 28, 28), 16, 4),
    ((11, 8, 90, 90), 16, 1),  # one vector a row
    ((122, 24, 13, 13), 16, 3),  # whole rows
    ((3, 1000), 1, 4),  # most threads have no row
    ((17, 1736, 5, 5), 1, 14),  # the last item is smaller
    ((433, 60, 7), 8, 8),  # vectors of 8 bytes
    ((33, 18, 7, 7), 2, 9),  # of 4
    ((1, 96, 11, 11, 11), 8, 6),
    ((1, 1799, 6, 6, 6), 1, 16),  # of 2: single elements, through registers
    ((21458, 15), 16, 15),
    ((4, 513, 14, 14), 4, 32),
]


@pytest.fixture(autouse=True)
def _clusters() -> None:
    from gradkern.cuda.device import get_device

    if get_device(0).capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")


@pytest.mark.parametrize(("sizes", "cluster_size", "vectors"), SHAPES, ids=str)
def test_every_shape(sizes: tuple[int, ...], cluster_size: int, vectors: int) -> None:
    check(case(sizes, b, b, f), cluster_size=cluster_size, vectors=vectors, last=True)


@pytest.mark.parametrize("types", TYPES, ids=" ".join)
@pytest.mark.parametrize(("sizes", "cluster_size"), [((16, 64, 28, 28), 8), ((40, 16, 7, 7), 1)], ids=str)
def test_every_combination_of_types(sizes: tuple[int, ...], cluster_size: int, types: tuple[str, str, str]) -> None:
    check(case(sizes, *types), cluster_size=cluster_size, vectors=2, last=True)


@pytest.mark.parametrize("outputs", [OUTPUTS[:1], OUTPUTS[::2], OUTPUTS[:2]], ids=" ".join)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(case((16, 64, 28, 28), h, f, f), outputs=outputs, cluster_size=8, vectors=4, last=True)


@pytest.mark.parametrize(("sizes", "cluster_size", "vectors"), [((64, 2048, 7, 7), 16, 20), ((12, 448, 10), 1, 2)])
@pytest.mark.parametrize("source", ["dY", "X"])
def test_dX_may_be_written_over_what_it_is_made_from(
    source: str, sizes: tuple[int, ...], cluster_size: int, vectors: int
) -> None:
    check(case(sizes, b, f, f), in_place=source, cluster_size=cluster_size, vectors=vectors, last=True)


@pytest.mark.parametrize("offset", [2, 4])
def test_arrays_may_begin_within_a_vector(offset: int) -> None:
    check(case((20, 64, 7, 7), b, f, f), offset=offset, cluster_size=2, vectors=32 // (2 * offset), last=True)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "silu"])
@pytest.mark.parametrize("types", TYPES, ids=" ".join)
def test_the_gradient_of_an_activation(activation: str, types: tuple[str, str, str]) -> None:
    for sizes, cluster_size, vectors in (((16, 64, 28, 28), 8, 2), ((17, 1736, 5, 5), 1, 2)):
        check(backward(sizes, *types, activation=activation), cluster_size=cluster_size, vectors=vectors, last=True)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    check(case((20, 64, 28, 28), f, far=3000), cluster_size=16, vectors=4, last=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float) -> None:
    operands = case((20, 64, 28, 28), f)
    operands.inputs["dY"][7, 11, 3, 2] = value
    operands.inputs["X"][8, 12, 4, 1] = value
    check(operands, cluster_size=16, vectors=4, last=True)


@pytest.mark.parametrize(
    ("sizes", "cluster_size", "vectors"), [((64, 2048, 7, 7), 16, 20), ((64, 512, 7, 7), 2, 4)], ids=str
)
def test_a_hundred_runs_give_the_same_bits(sizes: tuple[int, ...], cluster_size: int, vectors: int) -> None:
    check_the_bits_repeat(case(sizes, b, f, f), cluster_size=cluster_size, vectors=vectors, last=True)


def test_a_capture_replays() -> None:
    check_a_replay(case((20, 64, 28, 28), b, f, f), cluster_size=16, vectors=4, last=True)


def test_the_driver_says_how_many_clusters_run_at_the_same_time() -> None:
    """Never more than have room, and, of one block, all."""
    from gradkern.cuda.device import get_device
    from gradkern.cuda.launch import resident_clusters

    device = get_device(0)
    assert resident_clusters(device, 1, 256) == device.processors
    for cluster in (2, 4, 8):
        assert 0 < resident_clusters(device, cluster, 256) <= device.processors // cluster
