"""The last step of sums over rows, compiled alone: warps are brought together before the block's barriers."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.compile import compile_kernel
from gradkern.cuda.device_code.columns import ColumnSums

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_every_warp_comes_to_a_barrier_as_a_whole(chunk: int) -> None:
    """Else ptxas of CUDA 13 let warps come in parts, of which each counted: kernels that went on were wrong."""
    from gradkern.cuda.device_code.column_sums import column_sums

    spec = ColumnSums(1, 256, 1, 1, sums=2, compute="float32", result="float32", at=0, chunk=chunk, rows_in_flight=1)
    _, add_over_grid = column_sums(spec)

    def kernel(partial: int, counter: int, first: int, second: int, rows: int, columns: int) -> None:
        add_over_grid(partial, counter, 0, first, second, second, rows, rows, columns)

    ptx = compile_kernel(kernel, 6, (9, 0), spec.threads).ptx
    lines = [line.strip() for line in ptx.splitlines()]
    instructions = [line for line in lines if line and not line.startswith("//") and not line.endswith(":")]
    barriers = [n for n, line in enumerate(instructions) if line.startswith("bar.sync")]
    assert len(barriers) == 4  # two of the grid's, two of a share
    assert all(instructions[n - 1].startswith("bar.warp.sync") for n in barriers)
