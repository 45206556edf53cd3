"""Kernels of a stream of float32 with a branch of 16 bits, as calls plan them, compile for every architecture."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.call import Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.dispatch.run import dry_plan_for
from gradkern.strides import c_strides

pytestmark = pytest.mark.thorough

KINDS = [  # rows, columns, type of the branch, of the norm's output, of the parameters
    (16384, 768, "bfloat16", "bfloat16", "float32"),
    (512, 1024, "bfloat16", "float32", "float32"),
    (8192, 4096, "float16", "float16", "float16"),
    (1024, 65536, "bfloat16", "bfloat16", "float32"),
    (4000, 1001, "bfloat16", "bfloat16", "float32"),
    (300, 17032, "bfloat16", "bfloat16", "float32"),
    (118, 35624, "bfloat16", "bfloat16", "float32"),
]


def tensor(dtype: str, *shape: int) -> Tensor:
    made = np.dtype(dtype)
    return Tensor(made, shape, c_strides(shape, made.itemsize), 256)


@pytest.mark.parametrize("operator", ["", "Simplified"])
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([*product(KINDS[:1], HOPPER), (KINDS[-1], HOPPER[0])], product(KINDS, [*HOPPER, *OTHERS])),
)
def test_both_ways_are_one_launch_without_a_spill(
    operator: str, kind: tuple[Any, ...], capability: tuple[int, int]
) -> None:
    rows, columns, branch, output, parameter = kind
    stream, row, of_rows = tensor("float32", rows, columns), tensor(parameter, columns), tensor("float32", rows)
    forward = {"input": tensor(branch, rows, columns), "skip": stream, "gamma": row}
    backward = {"Y_grad": tensor(output, rows, columns), "X": stream, "scale": row, "residual_grad": stream}
    if operator:
        backward["inv_std_var"] = of_rows
        sums = ("scale_grad",)
    else:
        forward["beta"] = row
        backward |= {"mean": of_rows, "inv_std_dev": of_rows}
        sums = ("scale_grad", "bias_grad")
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        given: dict[str, Any] = {"device": "cuda:0"}
        dry_plan_for(f"Skip{operator}LayerNormalization", forward, "cuda", output_type=output, **given)
        outputs = ("X_grad", *sums, "branch_grad")
        name = f"{operator}LayerNormalizationGrad"
        dry_plan_for(name, backward, "cuda", outputs=outputs, branch_grad_type=branch, **given)
    if capability >= (9, 0) or columns < 8192:  # others have no clusters for wide rows
        assert len(device.specs) == 2
    for spec in device.specs:
        assert made_of(spec).spilled == 0, spec.name
