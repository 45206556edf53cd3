"""The tiles kernel of DirectML's batch norm under the CUDA simulator; test_simulated runs this file in its own process.

What both operators share of the kernel is simulated more widely with GELU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.dml_batch_norm import DML, EPSILON, OUTPUTS, Case, case
from helpers.guarded import Guarded

from gradkern.channel_kernels.tiles_form import ARGUMENTS
from gradkern.cuda.device_code import simulated
from gradkern.ops.dml_batch_norm.cuda.form import DmlBatchNormForm
from gradkern.ops.dml_batch_norm.cuda.kernel import build
from gradkern.ops.dml_batch_norm.cuda.plan import NAMES_OF_TILES

b, h, f, d = "bfloat16", "float16", "float32", "float64"


def check(operands: Case, outputs: tuple[str, ...] = OUTPUTS, blocks: int = 0, in_place: str = "", **form: Any) -> None:
    """One launch on a matrix, in memory that shows every stray read and write."""
    X = operands.inputs["Input"]
    rows, columns = X.shape
    fold = form.pop("fold", 1)
    names = {"OutputGradient": "dX", "OutputScaleGradient": "scale_sum", "OutputBiasGradient": "bias_sum"}
    made = DmlBatchNormForm(
        DML, X.dtype.name, X.dtype.name, tuple(names[each] for each in outputs),
        folded=fold > 1, fold=fold, epsilon=EPSILON, **form,
    )  # fmt: skip
    held = {name: Guarded(array.shape, array.dtype) for name, array in operands.inputs.items()}
    for name, array in operands.inputs.items():
        held[name].array[...] = array
        if name != in_place:
            held[name].freeze()
    for name in outputs:
        held[name] = Guarded(X.shape if name == "OutputGradient" else (1, columns), X.dtype)
    if in_place:
        held["OutputGradient"] = held[in_place]
    chunks = made.chunks(-(-rows // fold))
    partial = Guarded((chunks * made.column_sums.partial_bytes(columns * fold),), np.uint8)
    counter = np.zeros(64, np.uint32)
    numbers = {NAMES_OF_TILES[name]: each.address for name, each in held.items()}
    numbers |= {"partial": partial.address, "counter": counter.ctypes.data, **made.sizes(columns * fold)}
    numbers |= {"rows": rows // fold, "tail": rows % fold * columns, "repeat": columns}
    numbers |= {f"{name}_stride": columns * fold * X.itemsize for name in ("D", "X", "dX")}
    arguments = tuple(np.int64(numbers.get(name, 0)) for name in ARGUMENTS)
    blocks = blocks or chunks * made.slices(columns * fold)
    simulated.launch(build(made), blocks, made.threads, 1, made.shared_bytes, arguments)
    for each in (*held.values(), partial):
        each.check()
    operands.check({name: np.array(held[name].array) for name in outputs})


def matrix(rows: int, columns: int, dtype: str) -> Case:
    return case((rows, columns), (1, columns), dtype)


@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_every_type(dtype: str) -> None:
    width = 16 // np.dtype(dtype).itemsize
    check(matrix(43, 200, dtype), blocks=3, width=width, lanes=8, warp_groups=2, unroll=2, parameters_at_once=width)


@pytest.mark.parametrize("outputs", [OUTPUTS, OUTPUTS[:2]], ids=" ".join)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(matrix(43, 96, f), outputs, blocks=2, width=4, lanes=8, warp_groups=1, unroll=2, parameters_at_once=4)


@pytest.mark.parametrize("rows", [8, 29, 95])
def test_rows_of_odd_columns_folded_into_one_with_whole_vectors(rows: int) -> None:
    check(matrix(rows, 33, h), blocks=2, width=8, lanes=16, warp_groups=1, unroll=2, fold=8)


def test_a_block_with_all_rows_of_its_columns() -> None:
    check(matrix(37, 96, b), width=8, lanes=4, whole=True, warp_groups=3, unroll=2, single_block=True)


@pytest.mark.parametrize("source", ["Input", "InputGradient"])
def test_the_gradient_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(matrix(19, 64, f), blocks=2, in_place=source, width=4, lanes=16, warp_groups=1, unroll=2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float) -> None:
    operands = matrix(40, 64, f)
    operands.inputs["InputGradient"][2, 3] = value
    operands.inputs["Input"][17, 5] = value
    check(operands, blocks=2, width=4, lanes=8, warp_groups=1, unroll=2)
