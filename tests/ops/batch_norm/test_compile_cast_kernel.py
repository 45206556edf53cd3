"""The kernel that casts a batch norm's vectors compiles for every architecture, without a GPU and without a spill."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.thorough

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize(
    ("source", "target"),
    [("bfloat16", "float32"), ("float32", "bfloat16"), ("float32", "float16"), ("float64", "float64")],
)
def test_it_compiles_without_a_spill(source: str, target: str, capability: tuple[int, int]) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.batch_norm.cuda.cast_kernel import ARGUMENTS, build

    made = compile_kernel(build(source, target, 3), ARGUMENTS, capability, 256)
    assert made.spilled == 0
    assert ".local" not in made.ptx
