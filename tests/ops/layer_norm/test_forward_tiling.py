"""How the rows of a layer norm are given to threads, without a GPU: few kernels serve all widths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.compiled import OTHERS, SHARED_MEMORY
from helpers.norm_forward import LAYER, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED

from gradkern.ops.layer_norm.cuda.forward.form import NormForm
from gradkern.ops.layer_norm.cuda.forward.tiling import choose

OUTPUTS = frozenset({"Y", "mean", "inv_std"})
FORM = NormForm(LAYER, "bfloat16", "bfloat16", "bfloat16", "float32", OUTPUTS, True, False, 8, 1, 1, 1, scale_width=8)


def chosen(columns: int, rows: int = 1 << 20, operator: str = LAYER) -> NormForm:
    form = replace(FORM, operator=operator, biased=operator == LAYER)
    return choose(form, columns, rows, 132, 232448)


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, SKIP_SIMPLIFIED])
def test_few_kernels_serve_all_widths(operator: str) -> None:
    widths = range(64, 16384 + 1, 8)
    assert len({chosen(columns, operator=operator) for columns in widths}) <= 45


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, SKIP_SIMPLIFIED])
@pytest.mark.parametrize("columns", [64, 72, 768, 1000, 4096, 5000, 16384, 24576, 65536, 200000, 300000])
def test_the_slices_of_a_row_fit_their_threads(columns: int, operator: str) -> None:
    form = chosen(columns, operator=operator)
    slice_columns = form.slice_columns(columns)
    assert (form.slices - 1) * slice_columns < columns <= form.slices * slice_columns
    assert slice_columns <= form.most_columns
    assert form.certain_vectors * form.lanes * form.width <= form.fewest_columns(columns)
    assert form.shared_bytes <= 232448
    assert form.threads * form.blocks_per_processor <= 2048
    assert form.lanes < 33 or form.warp_groups < 16  # a group of warps has a named barrier, of which there are 15


@pytest.mark.parametrize("rows", [1, 132, 264])
@pytest.mark.parametrize(
    ("columns", "slices", "warps"),
    [(64, 1, 1), (768, 1, 1), (1024, 1, 1), (4096, 1, 16), (16384, 1, 16), (24576, 1, 16), (32768, 2, 16)],
)
def test_few_rows_have_a_block_each_whose_blocks_meet_nobody(rows: int, columns: int, slices: int, warps: int) -> None:
    form = chosen(columns, rows)
    assert (form.slices, form.group_threads // 32, form.once) == (slices, warps, slices == 1)


@pytest.mark.parametrize(
    ("operator", "data", "width", "columns", "rows", "values"),
    [
        (SIMPLIFIED, "float64", 2, 12800, 71, 32),
        (LAYER, "float64", 2, 12800, 71, 0),  # would spill registers
        (LAYER, "float64", 2, 12288, 71, 24),
        (LAYER, "float32", 4, 16384, 132, 32),
        (LAYER, "float32", 4, 16384, 133, 0),  # a ring, or a cluster, is faster
        (SKIP, "bfloat16", 8, 24576, 71, 0),
        (LAYER, "bfloat16", 2, 20002, 71, 0),  # narrow accesses
    ],
)
def test_few_wide_rows_have_a_block_each_where_its_threads_can_hold_them(
    operator: str, data: str, width: int, columns: int, rows: int, values: int
) -> None:
    form = replace(FORM, operator=operator, data=data, result=data, parameter=data, width=width, scale_width=width)
    form = choose(replace(form, biased=operator == LAYER), columns, rows, 132, 232448)
    assert (form.per_thread if form.once else 0) == values


def test_few_rows_have_their_parameters_on_the_way_where_all_of_them_are_on_the_device_then() -> None:
    """Two blocks of 512 threads have 64 registers a thread, which 16 values and their scales and biases do not fit."""
    assert chosen(4096, 264).parameters == "ahead"
    assert [chosen(8192, rows).parameters for rows in (132, 133)] == ["ahead", "global"]


@pytest.mark.parametrize("capability", [(9, 0), *OTHERS])
@pytest.mark.parametrize("data", ["bfloat16", "float32", "float64"])
def test_every_device_has_the_shared_memory_for_what_is_chosen(capability: tuple[int, int], data: str) -> None:
    width = {"bfloat16": 8, "float32": 4, "float64": 2}[data]
    source = {(7, 5): "plain", (8, 0): "async"}.get(capability, "bulk")
    for operator in (LAYER, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED):
        form = replace(FORM, operator=operator, data=data, result=data, parameter="float32", width=width, source=source)
        for columns in (8, 128, 1024, 4096, 16384, 65536, 262144):
            for rows in (10, 1 << 20):
                made = choose(form, columns, rows, 132, SHARED_MEMORY[capability])
                assert made.shared_bytes <= SHARED_MEMORY[capability]


@pytest.mark.parametrize(
    ("operator", "rows", "columns", "once", "shape"),
    [
        (LAYER, 4096, 1024, False, (32, 4, 16)),
        (LAYER, 16384, 1024, False, (32, 4, 16)),
        (LAYER, 4095, 1024, True, (32, 4, 2)),
        (LAYER, 16385, 1024, True, (32, 4, 2)),
        (LAYER, 4096, 768, True, (32, 3, 2)),
        (SKIP, 4096, 1024, True, (32, 4, 2)),
    ],
)
def test_rows_have_a_ring_or_blocks_of_their_own_where_that_was_faster(
    operator: str, rows: int, columns: int, once: bool, shape: tuple[int, int, int]
) -> None:
    """On an H200, timed in the same rounds; the others keep what they had."""
    form = choose(replace(FORM, operator=operator), columns, rows, 132, 232448)
    assert (form.once, (form.lanes, form.vectors, form.warp_groups)) == (once, shape)
