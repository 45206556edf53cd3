"""The kernel for few channels, its own source under the CUDA simulator."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers import simulated
from helpers.few_channels import FewChannels, make
from helpers.guarded import Guarded
from helpers.tolerance import assert_close

from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.few_channels.candidates import config_of
from gradkern.ops.conv.cuda.few_channels.config import FewChannelsConfig
from gradkern.ops.conv.cuda.few_channels.kernel import build

DEVICE = Device(0, (9, 0), 132, 232448)
b, h = "bfloat16", "float16"


def check(case: FewChannels, chunks: int = 1, grid: int | None = None) -> FewChannelsConfig:
    """dW in so many runs of rows, by so many blocks: as many as there are runs and groups, or fewer."""
    problem, arrays, out, expected = make(case)
    config = config_of(problem, DEVICE)
    partial = Guarded((chunks, config.filters * config.all_taps), "float32")
    counter = np.zeros(64, np.uint32)
    addresses = (*(arrays[name].address for name in ("X", "dY", "W")), partial.address, counter.ctypes.data)
    given = tuple(np.int64(each) for each in (*addresses, case.images, chunks))
    blocks = config.groups * chunks if grid is None else grid
    simulated.launch(build(config), blocks, config.threads, 1, config.shared_bytes, given)
    for each in (*arrays.values(), partial):
        each.check()
    assert_close("ConvGrad", "dW", out, expected)
    return config


def test_three_channels_seven_taps_and_a_stride() -> None:
    config = check(FewChannels(2, 3, 16, (9, 34), (7, 7), (2, 2), (3, 3, 3, 3), h))
    assert (config.place_tiles, config.column_tiles) == (3, 2)


@pytest.mark.parametrize(("columns", "vector"), [(16, 16), (12, 8), (10, 4), (9, 2)])
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_X_are_copied_by_the_widest_vectors_that_lie_right(columns: int, vector: int, stride: int) -> None:
    """With pads of an odd number of elements before them."""
    config = check(FewChannels(2, 3, 8, (6, columns), (3, 3), (stride, stride), (1, 1, 1, 1), h))
    assert config.X_vector == vector


@pytest.mark.parametrize(("channels", "stride", "apart"), [(3, 2, 2), (3, 4, 1), (4, 1, 1), (1, 1, 2)])
def test_pairs_of_columns_in_the_order_in_which_lanes_read_different_banks(
    channels: int, stride: int, apart: int
) -> None:
    config = check(FewChannels(1, channels, 32, (5, 35 * stride), (3, 3), (1, stride), (1, 1, 1, 1), b))
    assert config.pairs_apart == apart


def test_columns_that_do_not_fill_the_last_product_an_odd_number_of_them() -> None:
    check(FewChannels(1, 3, 8, (4, 11), (3, 3), (1, 1), (1, 1, 1, 1), b))


@pytest.mark.parametrize("channels", [1, 2, 5, 7])
def test_every_number_of_channels(channels: int) -> None:
    check(FewChannels(2, channels, 24, (5, 6), (2, 3), (1, 1), (0, 1, 1, 0), h))


def test_strides_beyond_the_taps_and_pads_beyond_the_array() -> None:
    check(FewChannels(2, 3, 16, (13, 13), (2, 2), (3, 4), (0, 0, 0, 0), h))
    check(FewChannels(1, 4, 16, (2, 3), (5, 4), (1, 1), (4, 3, 4, 3), b))


def test_patches() -> None:
    check(FewChannels(2, 3, 40, (8, 12), (4, 4), (4, 4), (0, 0, 0, 0), b))


def test_more_filters_than_a_block_takes_in_runs_that_end_within_images() -> None:
    config = check(FewChannels(3, 3, 72, (5, 6), (3, 3), (2, 1), (1, 1, 1, 1), h), chunks=4, grid=3)
    assert config.groups == 2


def test_images_and_rows_apart_in_a_filter_of_another_order() -> None:
    check(FewChannels(3, 3, 16, (4, 8), (3, 3), (1, 1), (1, 1, 1, 1), h, spread=8, filters_last=False))
