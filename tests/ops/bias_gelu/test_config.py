"""How many kernels many widths need: columns are numbers of a launch."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np
import pytest
from helpers.bias_gelu import EXACT

from gradkern.cuda.device_code.columns import reciprocal
from gradkern.kernels.channels.tiles_config import fold_of_sums, one_tile
from gradkern.ops.bias_gelu.cuda.config import BiasGeluConfig, choose
from gradkern.ops.bias_gelu.cuda.plan import _fold


@pytest.mark.parametrize(
    ("outputs", "step", "most"), [(("dX",), 8, 13), (("dX",), 1, 24), (("dX", "dB"), 8, 19), (("dX", "dB"), 1, 48)]
)
def test_few_kernels_serve_all_widths(outputs: tuple[str, ...], step: int, most: int) -> None:
    rows, sums, configs = 1 << 20, "dB" in outputs, set()
    for columns in range(64, 16384 + 1, step):
        fold, biases = _fold(rows, columns, 2, 8, not sums), gcd(8, columns)
        config = BiasGeluConfig(EXACT, "bfloat16", "bfloat16", outputs, 8, parameters_at_once=biases)
        if sums:
            fold = fold_of_sums(config, rows, columns, fold)
        config = replace(config, folded=fold > 1, fold=fold if sums else 1)
        configs.add(choose(config, columns * fold, rows // fold, 132))
    assert len(configs) <= most


def test_the_reciprocal_divides_like_division() -> None:
    values = np.random.default_rng(0).integers(0, 1 << 31, 1000, np.uint64)
    for divisor in (1, 2, 3, 7, 8, 79, 641, 65535, 65536, 999983, (1 << 31) - 1):
        near = np.minimum(np.arange(50, dtype=np.uint64) * np.uint64(divisor), np.uint64((1 << 31) - 1))
        given = np.concatenate([values, near, np.maximum(near, 1) - 1, [(1 << 31) - 1]]).astype(np.uint64)
        multiplier, shift = reciprocal(divisor)
        assert multiplier < 1 << 32
        divided = (2 * given * np.uint64(multiplier) >> np.uint64(32)) >> np.uint64(shift)
        assert np.array_equal(divided, given // divisor)


@pytest.mark.parametrize(
    ("rows", "columns", "unroll"), [(128, 3072, 1), (256, 1024, 1), (700, 1024, 2), (4096, 1024, 4)]
)
def test_small_arrays_are_cut_into_blocks_for_all_multiprocessors(rows: int, columns: int, unroll: int) -> None:
    config = choose(BiasGeluConfig(EXACT, "bfloat16", "bfloat16", ("dX",), 8, parameters_at_once=8), columns, rows, 132)
    assert config.unroll == unroll
    assert unroll == 1 or config.chunks(rows) * config.slices(columns) >= 264


def sums_config(rows: int, columns: int, width: int = 8) -> tuple[BiasGeluConfig, int]:
    """Of a gradient in 16 bits with that of the bias, and its rows of the array in one of the kernel's."""
    biases = gcd(width, columns)
    config = BiasGeluConfig(EXACT, "bfloat16", "bfloat16", ("dX", "dB"), width, parameters_at_once=biases)
    fold = fold_of_sums(config, rows, columns, _fold(rows, columns, 2, width, False))
    config = replace(config, folded=fold > 1, fold=fold)
    return choose(config, columns * fold, -(-rows // fold), 132), fold


@pytest.mark.parametrize(
    ("rows", "columns", "fold"), [(400_000, 96, 2), (1000, 96, 1), (400_000, 128, 1), (4096, 4096, 1)]
)
def test_narrow_rows_side_by_side_fill_the_lanes_of_a_slice_where_there_are_many(
    rows: int, columns: int, fold: int
) -> None:
    config, found = sums_config(rows, columns)
    assert found == fold
    assert rows < 4096 or columns * fold == config.slices(columns * fold) * config.most_columns


@pytest.mark.parametrize(
    ("rows", "columns", "fold"),
    [(1_000_000, 31, 64), (400_000, 250, 32), (60_000, 1000, 8), (6000, 1000, 1), (150_000, 1001, 8), (36_941, 576, 1)],
)
def test_rows_are_folded_to_whole_lines_unless_they_get_few_or_long(rows: int, columns: int, fold: int) -> None:
    config, found = sums_config(rows, columns)
    assert found == fold
    assert columns != 31 or columns * fold == config.slices(columns * fold) * config.most_columns


def test_few_columns_with_many_partial_rows_are_shared_out_to_many_blocks_at_the_end() -> None:
    narrow, _ = sums_config(500_000, 128)
    wide, _ = sums_config(1372, 16504)
    assert (narrow.chunk, wide.chunk) == (1, 16)
    assert -(-128 // (4 * narrow.chunk)) == 32  # blocks, which had been 8


def test_few_tiles_one_below_another_are_well_filled() -> None:
    config, fold = sums_config(3220, 23767)
    rows = -(-3220 // fold)
    assert rows / (config.chunks(rows) * config.tile_rows) > 0.9 > rows / 480  # 480: by ten groups of warps


@pytest.mark.parametrize(
    ("columns", "slices"),
    [(8192, 256), (1024, 256), (704, 128), (8712, 512), (2608, 256), (560, 128), (46_528, 1024), (55_895, 1024)],
)
def test_slices_are_wider_where_their_edges_share_cache_lines_or_rows_are_very_long(columns: int, slices: int) -> None:
    config, _ = sums_config(20_000, columns)
    assert 2 * config.most_columns == slices  # bytes


def test_slices_are_not_wider_where_rows_are_few_enough_for_one_tile() -> None:
    config, fold = sums_config(502, 49865)
    assert (fold, config.lanes, config.chunks(-(-502 // fold))) == (8, 16, 1)


@pytest.mark.parametrize(
    ("rows", "columns", "lanes"), [(13, 80001, 128), (200, 60001, 32), (500, 80001, 16), (50, 3001, 16)]
)
def test_slices_are_wider_where_half_of_a_tile_would_lie_beyond_the_last_row(
    rows: int, columns: int, lanes: int
) -> None:
    config, _ = sums_config(rows, columns)
    assert config.lanes == lanes


@pytest.mark.parametrize(
    ("rows", "columns", "width", "one"),
    [
        (128, 3072, 8, True),
        (128, 300_000, 8, True),
        (54, 24833, 1, True),  # single elements, but not many
        (120, 40004, 4, True),
        (100, 300_001, 1, False),
        (256, 768, 8, True),  # as was the faster on an H200, of this line on
        (512, 3072, 8, True),
        (512, 12288, 8, True),
        (400, 1001, 1, True),
        (200, 4002, 2, True),
        (2048, 768, 8, False),
        (2048, 3072, 8, False),
        (4000, 64, 8, False),
    ],
)
def test_few_rows_are_one_tile_where_that_is_faster(rows: int, columns: int, width: int, one: bool) -> None:
    config = BiasGeluConfig(EXACT, "bfloat16", "bfloat16", ("dX", "dB"), width)
    found = one_tile(config, columns, rows, 132)
    assert (found is not None) is one
    assert choose(config, columns, rows, 132).single_block is one
    if found is not None:
        assert found.heights(columns, rows, 264)[:2] == (1, 1)
        assert found.heights(columns, rows, 264)[2] * found.tile_rows >= rows


@pytest.mark.parametrize("rows", [1, 17, 54, 128])
@pytest.mark.parametrize(("columns", "width"), [(4096, 8), (1001, 1), (1002, 2), (1004, 4), (33, 1), (8, 8)])
def test_one_tile_has_all_of_few_rows(rows: int, columns: int, width: int) -> None:
    config = choose(BiasGeluConfig(EXACT, "bfloat16", "bfloat16", ("dX", "dB"), width), columns, rows, 132)
    assert config.single_block
    assert config.chunks(rows) == 1  # all at once
    assert config.threads <= 512


@pytest.mark.parametrize(
    ("rows", "columns", "times"), [(1_000_000, 64, 4), (500_000, 128, 2), (60_000, 1024, 2), (36_941, 576, 2)]
)
def test_a_slices_first_tiles_are_higher_and_small_ones_come_last(rows: int, columns: int, times: int) -> None:
    config, fold = sums_config(rows, columns)
    assert fold == 1
    chunks, large, found = config.heights(columns, rows, 264)
    assert found == times
    small = chunks - large
    assert large > 0
    assert config.chunks(rows) == times * large + small  # no row is anybody's twice, and none is nobody's
    assert small * config.slices(columns) >= 2 * times * 264  # for every block at a time some
    assert config.heights(columns, 2 * config.tile_rows, 264) == (2, 0, times)  # few are all alike


@pytest.mark.parametrize(("rows", "columns", "fold"), [(60_000, 260, 1), (60_000, 124, 1), (60_000, 261, 2)])
def test_in_float64_rows_are_folded_to_whole_vectors_alone(rows: int, columns: int, fold: int) -> None:
    config = BiasGeluConfig(EXACT, "float64", "float64", ("dX", "dB"), 2, parameters_at_once=1)
    assert fold_of_sums(config, rows, columns, _fold(rows, columns, 8, 2, False)) == fold
