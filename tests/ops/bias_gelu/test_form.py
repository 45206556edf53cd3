"""How many kernels many widths need: columns are numbers of a launch."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.bias_gelu import EXACT

from gradkern.cuda.device_code.columns import reciprocal
from gradkern.ops.bias_gelu.cuda.form import BiasGeluForm, choose


@pytest.mark.parametrize(("outputs", "most"), [(("dX",), 10), (("dX", "dB"), 8)])
def test_few_kernels_serve_all_widths(outputs: tuple[str, ...], most: int) -> None:
    form = BiasGeluForm(EXACT, "bfloat16", "bfloat16", outputs, 8, bias_width=8)
    assert len({choose(form, columns, 1 << 15, 132) for columns in range(64, 16384 + 1, 8)}) <= most


def test_the_reciprocal_divides_like_division() -> None:
    values = np.random.default_rng(0).integers(0, 1 << 31, 1000, np.uint64)
    for divisor in (1, 2, 3, 7, 8, 79, 641, 65535, 65536, 999983, (1 << 31) - 1):
        near = np.minimum(np.arange(50, dtype=np.uint64) * np.uint64(divisor), np.uint64((1 << 31) - 1))
        given = np.concatenate([values, near, np.maximum(near, 1) - 1, [(1 << 31) - 1]]).astype(np.uint64)
        multiplier, shift = reciprocal(divisor)
        assert multiplier < 1 << 32
        divided = (2 * given * np.uint64(multiplier) >> np.uint64(32)) >> np.uint64(shift)
        assert np.array_equal(divided, given // divisor)
