"""How many kernels many widths need: columns are numbers of a launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.bias_gelu import EXACT

from gradkern.cuda.device_code.columns import reciprocal
from gradkern.ops.bias_gelu.cuda.form import BiasGeluForm, choose, fold_of_sums
from gradkern.ops.bias_gelu.cuda.plan import _fold


@pytest.mark.parametrize(("outputs", "step", "most"), [(("dX",), 8, 13), (("dX",), 1, 17), (("dX", "dB"), 8, 13)])
def test_few_kernels_serve_all_widths(outputs: tuple[str, ...], step: int, most: int) -> None:
    rows, sums, forms = 1 << 20, "dB" in outputs, set()
    for columns in range(64, 16384 + 1, step):
        fold, biases = _fold(rows, columns, 2, 8, not sums), 8 if columns % 8 == 0 else 1
        form = BiasGeluForm(EXACT, "bfloat16", "bfloat16", outputs, 8, bias_width=biases)
        if sums:
            fold = fold_of_sums(form, rows, columns, fold)
        form = replace(form, folded=fold > 1, fold=fold if sums else 1)
        forms.add(choose(form, columns * fold, rows // fold, 132))
    assert len(forms) <= most


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
    form = choose(BiasGeluForm(EXACT, "bfloat16", "bfloat16", ("dX",), 8, bias_width=8), columns, rows, 132)
    assert form.unroll == unroll
    assert unroll == 1 or form.chunks(rows) * form.slices(columns) >= 264
