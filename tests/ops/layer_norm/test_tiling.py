"""How many kernels many widths need: each that is compiled serves all that its threads have vectors for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.layer_norm import ALL_OUTPUTS, LAYER

from gradkern.ops.layer_norm.cuda.form import LayerNormForm
from gradkern.ops.layer_norm.cuda.tiling import choose

TYPES = ("bfloat16", "bfloat16", "bfloat16", "bfloat16", "float32")
FORM = LayerNormForm(LAYER, *TYPES, frozenset(ALL_OUTPUTS[LAYER]), 8, 1, 1, 1, scale_width=8)


def chosen(columns: int, rows: int = 1 << 20) -> LayerNormForm:
    return choose(FORM, columns, rows, 132, 232448)


def test_few_kernels_serve_all_widths() -> None:
    widths = range(64, 16384 + 1, 8)
    assert len({chosen(columns) for columns in widths}) <= 45
    assert len({chosen(columns, rows) for columns in widths[::16] for rows in (264, 265)}) <= 80


def test_few_kernels_serve_all_widths_by_units() -> None:
    form = replace(FORM, by_units=True, scale_width=1)
    forms = {choose(form, columns, 1 << 20, 132, 232448) for columns in range(385, 16384, 5)}
    assert len(forms) <= 45


@pytest.mark.parametrize("columns", [64, 72, 768, 1000, 4096, 5000, 16384, 65536, 200000, 262144, 300000])
def test_the_slices_of_a_row_fit_their_threads(columns: int) -> None:
    form = chosen(columns)
    slice_columns = form.slice_columns(columns)
    assert (form.slices - 1) * slice_columns < columns <= form.slices * slice_columns
    assert slice_columns <= form.most_columns
    assert form.certain_vectors * form.lanes * form.width <= columns - (form.slices - 1) * slice_columns


@pytest.mark.parametrize("more", [(), ("X_grad_sum",)])
@pytest.mark.parametrize("shared_bytes", [232448, 101376])
def test_a_thread_has_registers_for_what_it_holds(shared_bytes: int, more: tuple[str, ...]) -> None:
    """Values of a row, twice, scales and the sums: with one group of many threads they once did not fit."""
    wanted = replace(FORM, outputs=FORM.outputs.union(more))
    for columns in (8 * int(64 * 1.03**step) for step in range(155)):
        form = choose(wanted, columns, 1 << 20, 132, shared_bytes)
        registers = 65536 // (-(-form.threads // 128) * 128)
        assert not form.row_in_registers or form.per_thread * (3 + form.sums) + 16 <= registers
