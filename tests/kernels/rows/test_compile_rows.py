"""The row block compiles with everything that a row may have: toy operators, on every generation of devices."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, parameters

from gradkern.call import Tensor
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from helpers.toy_rows import CROSS_ENTROPY, RMS_NORM, THREE_INPUTS, build

from gradkern.cuda.compile import compile_kernel
from gradkern.kernels.rows.config import configs
from gradkern.kernels.rows.problem import ARGUMENTS, RowsTypes, problem_of

pytestmark = pytest.mark.thorough

b, f, d = "bfloat16", "float32", "float64"
TOYS: list[tuple[Any, RowsTypes]] = [
    (RMS_NORM, RowsTypes("RMS", (b,), (b,), parameters=(f,), results=(f,), whole_parameters=True)),
    (CROSS_ENTROPY, RowsTypes("CrossEntropy", (f,), (f, b), scalars=(f, f), results=(f, f), reductions=2)),
    (CROSS_ENTROPY, RowsTypes("CrossEntropyDouble", (d,), (d, d), scalars=(d, d), results=(d, d), reductions=2)),
    (THREE_INPUTS, RowsTypes("Three", (b, f, b), (f,), parameters=(f, b, f), whole_parameters=True, pairs=True)),
]
SHAPES = [(4096, 64, 1), (4096, 1003, 1), (4096, 40_000, 1), (64, 300, 64)]
KINDS = [(toy, shape) for toy, shape in product(range(len(TOYS)), SHAPES)]


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([*product(KINDS[::3], HOPPER)], [*product(KINDS, HOPPER), *product(KINDS[::2], OTHERS)]),
)
def test_no_register_is_spilled(kind: tuple[int, tuple[int, ...]], capability: tuple[int, int]) -> None:
    toy, (rows, columns, inner) = kind
    arithmetic, types = TOYS[toy][0], replace(TOYS[toy][1], registers=128, native_bfloat16=capability >= (8, 0))
    shape = (rows, columns, inner)

    def tensor(dtype: str) -> Tensor:
        return Tensor(np.dtype(dtype), shape, c_strides(shape, np.dtype(dtype).itemsize), 16)

    tensors = {str(n): tensor(each) for n, each in enumerate((*types.inputs, *types.outputs))}
    config = next(configs(problem_of(types, tensors, 1, 2), capability))
    kernel = build(arithmetic)(types, config)
    made = compile_kernel(kernel, len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    assert made.spilled == 0
    assert "ld.local" not in made.ptx
