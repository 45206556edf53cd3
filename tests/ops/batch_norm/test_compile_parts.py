"""The kernels of a batch norm's steps over a batch in parts compile for every architecture, without a spill."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, made_of, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.arrays.kind import dtype_of
from gradkern.call import Tensor
from gradkern.cuda.dry_run import device_named, dry_run
from gradkern.dispatch.run import dry_plan_for

pytestmark = pytest.mark.thorough

SHAPES = [((32, 64, 28, 28), True), ((32, 256, 56, 56), False), ((64, 2048, 7, 7), False), ((8192, 1024), False)]
GPUS = {(9, 0): "H100, H200", (7, 5): "T4", (8, 0): "A100", (10, 0): "B200", (12, 0): "GeForce RTX 5090"}
Kind = tuple[str, tuple[tuple[int, ...], bool], str]
KINDS: list[Kind] = [
    *product(["bfloat16", "float16", "float32", "float64"], SHAPES, ["Statistics", "FromStatistics", "GradSums"])
]
"""Type, shape and whether channels are last, step."""


def described(shape: tuple[int, ...], dtype: str, last: bool) -> Tensor:
    order = (0, *range(2, len(shape)), 1) if last else tuple(range(len(shape)))
    made = np.empty([shape[axis] for axis in order], dtype_of(dtype)).transpose(np.argsort(order))
    return Tensor(made.dtype, shape, made.strides, 16)


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(product(KINDS[::19], HOPPER), product(KINDS, [*HOPPER, *OTHERS]), covered=2),
)
def test_no_register_is_spilled(kind: Kind, capability: tuple[int, int]) -> None:
    dtype, (shape, last), step = kind
    x = described(shape, dtype, last)
    wide = "float64" if dtype == "float64" else "float32"
    each = described(shape[1:2], wide, False)
    statistics = {"saved_mean": each, "saved_inv_std": each}
    tensors = {
        "Statistics": {"X": x},
        "FromStatistics": {"X": x, "scale": each, "B": each, **statistics},
        "GradSums": {"dY": x, "X": x, **statistics},
    }[step]
    outputs = ("dScale", "dBias", "sums") if step == "GradSums" else None
    with dry_run(device_named(GPUS[capability])) as dry:
        dry_plan_for(f"BatchNormalization{step}", tensors, "cuda", device="cuda:0", outputs=outputs)
    (spec,) = dry.specs
    made = made_of(spec)
    assert made.spilled == 0, spec.description
    assert ".local" not in made.ptx


def test_sums_of_an_empty_part_are_zeros_without_a_kernel() -> None:
    x, each = described((0, 8, 3, 3), "bfloat16", True), described((8,), "float32", False)
    tensors = {"dY": x, "X": x, "saved_mean": each, "saved_inv_std": each}
    with dry_run(device_named("H100, H200")) as dry:
        for outputs in (("dScale", "dBias", "sums"), ("sums",), ("dBias",)):
            dry_plan_for("BatchNormalizationGradSums", tensors, "cuda", device="cuda:0", outputs=outputs)
    assert not dry.specs
