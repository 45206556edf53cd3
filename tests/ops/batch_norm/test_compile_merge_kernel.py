"""The kernel that merges the statistics of a batch's parts compiles for every architecture, without a spill."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.thorough

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")


@pytest.mark.parametrize("capability", [(7, 5), (9, 0), (12, 0)])
@pytest.mark.parametrize(
    ("dtype", "running"), [("float32", "bfloat16"), ("float32", "float32"), ("float64", "float64")]
)
def test_it_compiles_without_a_spill(dtype: str, running: str, capability: tuple[int, int]) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.batch_norm.cuda.merge_kernel import build
    from gradkern.ops.batch_norm.cuda.parts import MERGE_ARGUMENTS as ARGUMENTS

    outputs = ("statistics", "sample_statistics", "running_mean", "running_var")
    made = compile_kernel(build(dtype, running, 1e-5, outputs), len(ARGUMENTS), capability, 64)
    assert made.spilled == 0
    assert ".local" not in made.ptx
