"""The configs of GELU's kernel for any shape: every row and column has a thread, once, and no block lacks work."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np
import pytest
from helpers.bias_gelu import EXACT
from hypothesis import given
from hypothesis import strategies as st

from gradkern.cuda.device_code.columns import ITEMSIZE, reciprocal
from gradkern.kernels.channels.tiles_config import fold_of_sums
from gradkern.ops.bias_gelu.cuda.config import BiasGeluConfig, choose
from gradkern.ops.bias_gelu.cuda.plan import _fold

PROCESSORS = 132
BLOCKS = 2 * PROCESSORS
sizes = st.one_of(st.integers(1, 600), st.integers(1, 1 << 20), st.sampled_from([1 << n for n in range(21)]))


def chosen(rows: int, columns: int, data: str, outputs: tuple[str, ...]) -> tuple[BiasGeluConfig, int]:
    """The config, and the rows of the array in one of the kernel's."""
    width, sums = 16 // ITEMSIZE[data], "dB" in outputs
    config = BiasGeluConfig(EXACT, data, data, outputs, width, parameters_at_once=gcd(width, columns))
    fold = _fold(rows, columns, ITEMSIZE[data], width, not sums)
    if sums:
        fold = fold_of_sums(config, rows, columns, fold)
    config = replace(config, folded=fold > 1, fold=fold if sums else 1)
    return choose(config, columns * fold, -(-rows // fold), PROCESSORS), fold


@given(sizes, sizes, st.sampled_from([*ITEMSIZE]), st.sampled_from([("dX",), ("dX", "dB"), ("dB",)]))
def test_tiles_cover_every_element_once(rows: int, columns: int, data: str, outputs: tuple[str, ...]) -> None:
    config, fold = chosen(rows, columns, data, outputs)
    rows, columns = -(-rows // fold), columns * fold
    slices = config.slices(columns)
    assert columns % config.width == 0  # vectors are whole
    assert (slices - 1) * config.most_columns < columns <= slices * config.most_columns
    assert (config.chunks(rows) - 1) * config.tile_rows < rows <= config.chunks(rows) * config.tile_rows
    tiles, large, times = config.heights(columns, rows, BLOCKS)
    assert 0 <= large <= tiles
    assert times * large + tiles - large == config.chunks(rows)  # no row is anybody's twice, and none is nobody's
    assert config.threads <= 1024
    assert config.threads * config.blocks_per_processor <= 2048
    assert config.shared_bytes <= 65536  # the smallest device's


@given(sizes, sizes, st.sampled_from([*ITEMSIZE]))
def test_small_arrays_are_cut_into_blocks_for_all_multiprocessors(rows: int, columns: int, data: str) -> None:
    """As far as a thread has a row."""
    config, fold = chosen(rows, columns, data, ("dX",))
    assert config.unroll == 1 or config.chunks(-(-rows // fold)) * config.slices(columns * fold) >= BLOCKS


@pytest.mark.parametrize("rows", [1, 17, 54, 128])
@pytest.mark.parametrize(("columns", "width"), [(4096, 8), (1001, 1), (1002, 2), (1004, 4), (33, 1), (8, 8)])
def test_one_tile_has_all_of_few_rows(rows: int, columns: int, width: int) -> None:
    config = BiasGeluConfig(EXACT, "bfloat16", "bfloat16", ("dX", "dB"), width)
    config = choose(config, columns, rows, PROCESSORS)
    assert config.single_block
    assert config.chunks(rows) == 1  # all at once
    assert config.heights(columns, rows, BLOCKS)[:2] == (1, 1)


def test_the_sums_of_many_rows_are_of_large_tiles_first_and_small_ones_last() -> None:
    """So that blocks end together; of few tiles all are alike."""
    for rows, columns in ((1_000_000, 64), (500_000, 128), (60_000, 1024), (36_941, 576)):
        config, fold = chosen(rows, columns, "bfloat16", ("dX", "dB"))
        tiles, large, _ = config.heights(columns * fold, -(-rows // fold), BLOCKS)
        assert large > 0
        assert (tiles - large) * config.slices(columns * fold) >= 2 * BLOCKS  # for every block at a time some
        assert config.heights(columns * fold, 2 * config.tile_rows, BLOCKS)[:2] == (2, 0)


def test_narrow_rows_side_by_side_fill_the_lanes_of_a_slice_where_there_are_many() -> None:
    for columns in (31, 96, 128):
        config, fold = chosen(1_000_000, columns, "bfloat16", ("dX", "dB"))
        assert columns * fold == config.slices(columns * fold) * config.most_columns


def test_the_reciprocal_divides_like_division() -> None:
    values = np.random.default_rng(0).integers(0, 1 << 31, 1000, np.uint64)
    for divisor in (1, 2, 3, 7, 8, 79, 641, 65535, 65536, 999983, (1 << 31) - 1):
        near = np.minimum(np.arange(50, dtype=np.uint64) * np.uint64(divisor), np.uint64((1 << 31) - 1))
        given = np.concatenate([values, near, np.maximum(near, 1) - 1, [(1 << 31) - 1]]).astype(np.uint64)
        multiplier, shift = reciprocal(divisor)
        assert multiplier < 1 << 32
        divided = (2 * given * np.uint64(multiplier) >> np.uint64(32)) >> np.uint64(shift)
        assert np.array_equal(divided, given // divisor)
