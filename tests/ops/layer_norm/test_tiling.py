"""How many kernels many widths need: each that is compiled serves all that its threads have vectors for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.layer_norm import ALL_OUTPUTS, INVERTIBLE, LAYER, SIMPLIFIED

from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.tiling import choose

TYPES = ("bfloat16", "bfloat16", "bfloat16", "bfloat16", "float32")
CONFIG = LayerNormConfig(LAYER, *TYPES, frozenset(ALL_OUTPUTS[LAYER]), 8, 1, 1, 1, scale_width=8)


def chosen(columns: int, rows: int = 1 << 20) -> LayerNormConfig:
    return choose(CONFIG, columns, rows, 132, 232448)


def test_few_kernels_serve_all_widths() -> None:
    widths = range(64, 16384 + 1, 8)
    assert len({chosen(columns) for columns in widths}) <= 45
    assert len({chosen(columns, rows) for columns in widths[::16] for rows in (264, 265)}) <= 80


def test_few_kernels_serve_all_widths_by_units() -> None:
    config = replace(CONFIG, aligned_vectors=True, scale_width=1)
    configs = {choose(config, columns, 1 << 20, 132, 232448) for columns in range(385, 16384, 5)}
    assert len(configs) <= 45


@pytest.mark.parametrize("columns", [64, 72, 768, 1000, 4096, 5000, 16384, 65536, 200000, 262144, 300000])
def test_the_slices_of_a_row_fit_their_threads(columns: int) -> None:
    config = chosen(columns)
    slice_columns = config.slice_columns(columns)
    assert (config.blocks_per_row - 1) * slice_columns < columns <= config.blocks_per_row * slice_columns
    assert slice_columns <= config.most_columns
    assert (
        config.unpredicated_vectors * config.lanes * config.width
        <= columns - (config.blocks_per_row - 1) * slice_columns
    )


@pytest.mark.parametrize("more", [(), ("X_grad_sum",)])
@pytest.mark.parametrize("shared_bytes", [232448, 101376])
def test_a_thread_has_registers_for_what_it_holds(shared_bytes: int, more: tuple[str, ...]) -> None:
    """Values of a row, twice, scales and the sums: with one group of many threads they once did not fit."""
    wanted = replace(CONFIG, outputs=CONFIG.outputs.union(more))
    for columns in (8 * int(64 * 1.03**step) for step in range(155)):
        config = choose(wanted, columns, 1 << 20, 132, shared_bytes)
        registers = 65536 // (-(-config.threads // 128) * 128)
        assert not config.row_in_registers or config.per_thread * (3 + config.sums) + 16 <= registers


@pytest.mark.parametrize(
    # of those that were timed on an H200, 10 to 17 for each, within 2 % of the fastest
    ("operator", "rows", "columns", "data", "shape"),
    [
        (LAYER, 11364, 576, "float16", (1, 32, 3, 8, 6, 2)),  # in two blocks of a multiprocessor
        (LAYER, 7808, 9048, "bfloat16", (1, 384, 3, 8, 1, 1)),
        (LAYER, 14931, 1088, "float64", (1, 160, 4, 2, 3, 1)),
        (LAYER, 23463, 397, "float64", (1, 64, 8, 1, 4, 2)),
        (SIMPLIFIED, 492980, 80, "float16", (1, 4, 3, 8, 6, 2)),
        (SIMPLIFIED, 4094, 4464, "bfloat16", (1, 192, 3, 8, 2, 1)),
        (SIMPLIFIED, 3382, 1720, "float64", (1, 224, 4, 2, 1, 2)),
        (INVERTIBLE, 961950, 96, "float16", (1, 4, 3, 8, 6, 2)),
        (INVERTIBLE, 1998, 10424, "float16", (4, 128, 3, 8, 3, 1)),
        (INVERTIBLE, 1333, 30840, "float16", (8, 192, 3, 8, 2, 1)),
        (INVERTIBLE, 822, 21612, "float64", (8, 352, 4, 2, 1, 1)),
        (INVERTIBLE, 1325, 6539, "float64", (8, 128, 8, 1, 2, 2)),
    ],
)
def test_choices_are_near_the_fastest_config(
    operator: str, rows: int, columns: int, data: str, shape: tuple[int, int, int, int, int, int]
) -> None:
    statistic = "float64" if data == "float64" else "float32"
    width = 16 // np.dtype(data).itemsize
    while columns % width:
        width //= 2
    config = LayerNormConfig(
        operator, data, data, data, data, statistic, frozenset(ALL_OUTPUTS[operator]), width, 1, 1, 1
    )
    config = choose(replace(config, scale_width=width), columns, rows, 132, 232448)
    threads = (
        config.blocks_per_row,
        config.lanes,
        config.vectors,
        config.width,
        config.groups_per_block,
        config.blocks_per_processor,
    )
    assert threads == shape
    assert config.source == "bulk"


def test_rows_whose_ring_does_not_fit_are_cut_further_rather_than_read_without_one() -> None:
    """554 x 32616 of float64 by the invertible norm, whose parameters take half the memory: 184 us for 128."""
    types = ("float64", "float64", "float64", "float64", "float64")
    config = LayerNormConfig(INVERTIBLE, *types, frozenset(ALL_OUTPUTS[INVERTIBLE]), 2, 1, 1, 1, scale_width=2)
    config = choose(config, 32616, 554, 132, 232448)
    assert (config.source, config.blocks_per_row, config.row_in_registers) == ("bulk", 16, True)
