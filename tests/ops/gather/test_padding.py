"""Padding and taking it away again: kernels compile, and on a GPU the one undoes the other."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  makes "bfloat16" a NumPy type name
import numpy as np
import pytest
from helpers.calls import run_any
from helpers.torch_on_gpu import back, there

PROVIDERS = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.torch])]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("dtype", "after"), [("bfloat16", (24,)), ("float16", (7,)), ("float32", ()), ("float64", (3, 5))]
)
def test_what_was_padded_comes_back(provider: str, dtype: str, after: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    rows, indices = random.standard_normal((11, *after)).astype(dtype), random.permutation(20)[:11]
    to: Any = there if provider == "cuda" else lambda array: array
    padded = run_any("PadAndUnflatten", to(rows), to(indices), [4, 5]).output
    assert padded.shape == (4, 5, *after)
    again = run_any("FlattenAndUnpad", padded, to(indices)).output
    found, kept = (back(again), back(padded)) if provider == "cuda" else (again, padded)
    np.testing.assert_array_equal(found, rows)
    others = np.setdiff1d(np.arange(20), indices)
    assert not np.asarray(kept).reshape(20, *after)[others].any()


@pytest.mark.parametrize("size", [16, 2])
def test_the_kernel_compiles_without_a_spilled_register(size: int) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from gradkern.cuda.spec import KernelSpec
    from gradkern.ops.gather.cuda.plan import ARGUMENTS

    builder = "gradkern.ops.gather.cuda.copy_kernel:build_rows"
    compiled = KernelSpec(builder, (size, 256), "flatten_and_unpad", len(ARGUMENTS), 256, 1, (9, 0)).compile()
    assert compiled.spilled == 0
    assert "ld.local" not in compiled.ptx
