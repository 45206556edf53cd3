"""Which rows lie in shared memory as they do in memory's lines, without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.compiled import SHARED_MEMORY
from helpers.layer_norm import SIMPLIFIED as GRADIENT

from gradkern.call import Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.dispatch.run import dry_plan_for

NORM = "LayerNormalization"
h, f, d = "float16", "float32", "float64"


def config_of(operator: str, dtype: str, rows: int, columns: int, step: int = 0, capability: Any = (9, 0)) -> Any:
    """step: columns from row to row, where these are more."""
    size = np.dtype(dtype).itemsize
    data = Tensor(np.dtype(dtype), (rows, columns), ((step or columns) * size, size), 16)
    parameter = Tensor(np.dtype(dtype), (columns,), (size,), 16)
    statistic = Tensor(np.dtype(d if dtype == d else f), (rows, 1), (8 if dtype == d else 4,) * 2, 16)
    inputs = {"X": data, "Scale": parameter, "B": parameter}
    if operator == GRADIENT:
        inputs = {"Y_grad": data, "X": data, "scale": parameter, "inv_std_var": statistic}
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        dry_plan_for(operator, inputs, "cuda", device="cuda:0")
    (spec,) = device.specs
    return spec.constants[0]


@pytest.mark.parametrize(
    ("operator", "dtype", "rows", "columns", "step", "within"),
    [
        (NORM, h, 30_000, 5056, 0, False),  # 79 lines
        (NORM, h, 30_000, 5000, 5056, False),  # rows lie apart, each at the start of a line
        (GRADIENT, d, 200_000, 128, 0, False),  # 1024 bytes
        (GRADIENT, d, 40_000, 1192, 0, True),
        (GRADIENT, d, 40_000, 1192, 1200, False),
        *((operator, h, 30_000, 5000, 0, True) for operator in (NORM, GRADIENT)),
        *((operator, h, 30_001, 4787, 0, True) for operator in (NORM, GRADIENT)),  # by units
        *((operator, f, 2_000, 40_008, 0, True) for operator in (NORM, GRADIENT)),  # in slices
        (GRADIENT, d, 200_000, 104, 0, False),  # two rows at once are 13 lines
        (GRADIENT, d, 200_000, 100, 0, True),
        (GRADIENT, d, 200_000, 104, 108, False),  # two at once, apart
    ],
)
def test_rows_that_begin_within_lines(
    operator: str, dtype: str, rows: int, columns: int, step: int, within: bool
) -> None:
    config = config_of(operator, dtype, rows, columns, step)
    assert config.source == "bulk"
    assert config.line_aligned_stages == within
    if within:  # or what lies in a stage as in lines would not lie in them
        assert config.ring_at % 128 == 0
        assert all(slot % 128 == 0 for slot in config.slots)


@pytest.mark.parametrize("operator", [NORM, GRADIENT])
def test_rows_that_do_not_pass_through_a_ring_have_no_lines(operator: str) -> None:
    """One kernel serves them, whether they begin with a line or not."""
    assert not config_of(operator, h, 64, 1000).line_aligned_stages
    assert not config_of(operator, h, 60_000, 1000, capability=(8, 0)).line_aligned_stages
