"""How many rows of the array GELU's kernel takes as one of its own."""

from __future__ import annotations

from math import lcm

import pytest

from gradkern.ops.bias_gelu.cuda.plan import _fold


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize("columns", [1, 8, 109, 176, 576, 1000, 1001, 3816, 4096])
def test_rows_are_folded_to_whole_vectors_and_for_dX_alone_to_whole_lines(columns: int, itemsize: int) -> None:
    row = columns * itemsize
    vectors, lines = lcm(row, 16) // row, 1 if row % 128 == 0 else lcm(row, 256) // row
    assert _fold(1 << 20, columns, itemsize, 16 // itemsize, dX_alone=False) == vectors
    assert _fold(1 << 20, columns, itemsize, 16 // itemsize, dX_alone=True) == lines


def test_few_rows_and_rows_that_start_anywhere_are_folded_to_vectors() -> None:
    assert _fold(678, 52974, 2, 8, dX_alone=True) == 4
    assert _fold(1 << 20, 1001, 2, 2, dX_alone=True) == 2
