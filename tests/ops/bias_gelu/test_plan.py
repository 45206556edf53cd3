"""How many rows of the array GELU's kernel takes as one of its own."""

from __future__ import annotations

from itertools import product
from math import lcm
from typing import Any

import numpy as np
import pytest

from gradkern.call import Call, Tensor
from gradkern.ops.bias_gelu.cuda.plan import _fold, plan
from gradkern.policy import Policy


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


@pytest.mark.parametrize("operator", ["BiasGeluGrad_dX", "BiasGelu"])
@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("rows", [5, 100, 265, 700, 30_000])
def test_a_thread_loads_no_more_biases_at_once_than_its_vector_has_elements(
    operator: str, sums: bool, rows: int
) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")
    from gradkern.cuda.dry_run import DryRunDevice, dry_run

    kind = np.dtype(np.float16)
    for columns, spread, alignment in product((4, 33, 100, 1000, 1001, 1004), (0, 3, 24), (2, 8, 256)):
        row = (columns + spread) * kind.itemsize
        matrix = Tensor(kind, (rows, columns), (row, kind.itemsize), alignment)
        vector = Tensor(kind, (columns,), (kind.itemsize,), 256)
        names = ("A", "C") if operator == "BiasGelu" else ("X", "dX")
        inputs = {"dY": matrix} if operator != "BiasGelu" else {}
        inputs |= {names[0]: matrix, "B": vector}
        outputs = {names[1]: matrix} | ({"dB": vector} if sums and operator != "BiasGelu" else {})
        axes: dict[str, Any] = {"rows": (rows,), "columns": columns}
        call = Call(operator, inputs, outputs, {}, axes, frozenset(), "cuda:0", Policy())
        with dry_run(DryRunDevice(0, (9, 0), 132, 232448)) as device:
            plan(call)
        (spec,) = device.specs
        (config,) = spec.constants
        assert config.width % config.parameters_at_once == 0
        assert columns % config.parameters_at_once == 0
        assert alignment % (config.width * kind.itemsize) == 0
        if spread:
            assert row % (config.width * kind.itemsize) == 0
