"""The tiles kernel of DirectML's batch norm under the CUDA simulator.

What both operators share of the kernel is simulated more widely with GELU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.dml_batch_norm import DML, EPSILON, OUTPUTS, Case, case
from helpers.simulate_dml_batch_norm import launch

from gradkern.kernels.channels.tiles_config import ARGUMENTS
from gradkern.ops.dml_batch_norm.cuda.config import DmlBatchNormConfig
from gradkern.ops.dml_batch_norm.cuda.kernel import build
from gradkern.ops.dml_batch_norm.cuda.plan import NAMES_OF_TILES

b, h, f, d = "bfloat16", "float16", "float32", "float64"


def check(
    operands: Case, outputs: tuple[str, ...] = OUTPUTS, blocks: int = 0, in_place: str = "", **config: Any
) -> None:
    """One launch on a matrix, in memory that shows every stray read and write."""
    X = operands.inputs["Input"]
    rows, columns = X.shape
    fold = config.pop("fold", 1)
    names = {"OutputGradient": "dX", "OutputScaleGradient": "scale_sum", "OutputBiasGradient": "bias_sum"}
    made = DmlBatchNormConfig(
        DML, X.dtype.name, X.dtype.name, tuple(names[each] for each in outputs),
        folded=fold > 1, fold=fold, epsilon=EPSILON, **config,
    )  # fmt: skip
    chunks = made.chunks(-(-rows // fold))
    numbers = {"rows": rows // fold, "tail": rows % fold * columns, "repeat": columns}
    numbers |= made.sizes(columns * fold)
    numbers |= {f"{name}_stride": columns * fold * X.itemsize for name in ("D", "X", "dX")}
    partial_bytes = chunks * made.column_sums.partial_bytes(columns * fold)
    blocks = blocks or chunks * made.slices(columns * fold)
    launch(operands, made, build(made), ARGUMENTS, NAMES_OF_TILES, numbers, partial_bytes, blocks, outputs, in_place)


def matrix(rows: int, columns: int, dtype: str) -> Case:
    return case((rows, columns), (1, columns), dtype)


@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_every_type(dtype: str) -> None:
    width = 16 // np.dtype(dtype).itemsize
    check(
        matrix(43, 200, dtype), blocks=3, width=width, lanes=8, groups_per_block=2, unroll=2, parameters_at_once=width
    )


@pytest.mark.parametrize("outputs", [OUTPUTS, OUTPUTS[:2]], ids=" ".join)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(matrix(43, 96, f), outputs, blocks=2, width=4, lanes=8, groups_per_block=1, unroll=2, parameters_at_once=4)


@pytest.mark.parametrize("rows", [8, 29, 95])
def test_rows_of_odd_columns_folded_into_one_with_whole_vectors(rows: int) -> None:
    check(matrix(rows, 33, h), blocks=2, width=8, lanes=16, groups_per_block=1, unroll=2, fold=8)


def test_a_block_with_all_rows_of_its_columns() -> None:
    check(matrix(37, 96, b), width=8, lanes=4, whole=True, groups_per_block=3, unroll=2, single_block=True)


@pytest.mark.parametrize("source", ["Input", "InputGradient"])
def test_the_gradient_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(matrix(19, 64, f), blocks=2, in_place=source, width=4, lanes=16, groups_per_block=1, unroll=2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float) -> None:
    operands = matrix(40, 64, f)
    operands.inputs["InputGradient"][2, 3] = value
    operands.inputs["Input"][17, 5] = value
    check(operands, blocks=2, width=4, lanes=8, groups_per_block=1, unroll=2)
