"""The kernels of a batch norm's steps over a batch in parts compile for every architecture, without a spill."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import made_of

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.arrays.kind import dtype_of
from gradkern.call import Tensor
from gradkern.cuda.dry_run import dry_run
from gradkern.cuda.gpus import device_named
from gradkern.dispatch.run import dry_plan_for

pytestmark = pytest.mark.thorough

SHAPES = [((32, 64, 28, 28), True), ((32, 256, 56, 56), False), ((64, 2048, 7, 7), False), ((8192, 1024), False)]
GPUS = ["H100, H200", "T4", "A100", "B200", "GeForce RTX 5090"]
STEPS = ["Statistics", "FromStatistics", "GradSums"]


def kernels() -> Iterator[Any]:
    """Every step, type and layout for the first GPU, and for one other, in turn; with --long for all."""
    for number, (dtype, layout, step) in enumerate(
        product(["bfloat16", "float16", "float32", "float64"], SHAPES, STEPS)
    ):
        turn = 1 + (number + number // 4 + number // 12) % 4
        for place, gpu in enumerate(GPUS):
            marks = [] if (place, number % 19) == (0, 0) else [pytest.mark.every_kernel]
            yield pytest.param(gpu, dtype, layout, step, marks=marks if place in (0, turn) else pytest.mark.slow)


def described(shape: tuple[int, ...], dtype: str, last: bool) -> Tensor:
    order = (0, *range(2, len(shape)), 1) if last else tuple(range(len(shape)))
    made = np.empty([shape[axis] for axis in order], dtype_of(dtype)).transpose(np.argsort(order))
    return Tensor(made.dtype, shape, made.strides, 16)


@pytest.mark.parametrize(("gpu", "dtype", "layout", "step"), list(kernels()), ids=str)
def test_no_register_is_spilled(gpu: str, dtype: str, layout: Any, step: str) -> None:
    shape, last = layout
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
    with dry_run(device_named(gpu)) as dry:
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
