"""The kernels of ROI align's gradients compile for every architecture without a spilled register."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product

import pytest
from helpers.compiled import HOPPER, OTHERS, made_of, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.spec import KernelSpec
from gradkern.ops.roi_align.cuda.config import ARGUMENTS, FIRST, LAST, RoiConfig

pytestmark = pytest.mark.thorough

CONFIGS = [
    RoiConfig("float32", "float32", 4, False, False, False, **FIRST),
    RoiConfig("bfloat16", "float32", 8, True, False, True, **LAST),
    RoiConfig("float64", "float64", 4, True, True, False, **FIRST),
    RoiConfig("float16", "float16", 8, False, True, True, **LAST),
]
KINDS = list(product(CONFIGS, ("best", "images", "regions")))


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([*product(KINDS[1:2], HOPPER)], [*product(KINDS, HOPPER), *zip(KINDS, cycle(OTHERS), strict=False)]),
)
def test_no_register_is_spilled(kind: tuple[RoiConfig, str], capability: tuple[int, int]) -> None:
    config, name = replace(kind[0], native_bfloat16=capability >= (8, 0)), kind[1]
    threads = config.tile[0] * config.tile[1] * config.lanes
    builder = f"gradkern.ops.roi_align.cuda.kernel:build_{name}"
    made = made_of(KernelSpec(builder, (config,), f"gradkern_roi_{name}", len(ARGUMENTS), threads, 1, capability))
    assert (made.spilled, "ld.local" in made.ptx) == (0, False)
