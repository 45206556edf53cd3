"""The kernels of a batch norm's steps over a batch in parts compile for every architecture, without a spill."""

from __future__ import annotations

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
EVERY = list(product(GPUS, ["bfloat16", "float16", "float32", "float64"], SHAPES))


def described(shape: tuple[int, ...], dtype: str, last: bool) -> Tensor:
    order = (0, *range(2, len(shape)), 1) if last else tuple(range(len(shape)))
    made = np.empty([shape[axis] for axis in order], dtype_of(dtype)).transpose(np.argsort(order))
    return Tensor(made.dtype, shape, made.strides, 16)


@pytest.mark.parametrize(
    ("gpu", "dtype", "layout"),
    [pytest.param(*each, marks=pytest.mark.every_kernel if n % 19 else ()) for n, each in enumerate(EVERY)],
    ids=str,
)
def test_no_register_is_spilled(gpu: str, dtype: str, layout: Any) -> None:
    shape, last = layout
    x = described(shape, dtype, last)
    wide = "float64" if dtype == "float64" else "float32"
    each = described(shape[1:2], wide, False)
    statistics = {"saved_mean": each, "saved_inv_std": each}
    with dry_run(device_named(gpu)) as dry:
        for name, tensors, outputs in (
            ("Statistics", {"X": x}, None),
            ("FromStatistics", {"X": x, "scale": each, "B": each, **statistics}, None),
            ("GradSums", {"dY": x, "X": x, **statistics}, ("dScale", "dBias", "sums")),
        ):
            dry_plan_for(f"BatchNormalization{name}", tensors, "cuda", device="cuda:0", outputs=outputs)
    assert len(dry.specs) == 3
    for spec in dry.specs:
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
