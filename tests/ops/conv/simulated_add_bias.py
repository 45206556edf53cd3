"""The kernel that adds a bias to the output of a transposed convolution, under the CUDA simulator."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers import simulated
from helpers.held import hold

from gradkern.ops.conv.cuda.add_bias_kernel import build


@pytest.mark.parametrize(
    ("dtype", "width", "shape", "uniform", "long"),
    [
        ("bfloat16", 8, (2, 3, 5, 16), True, False),
        ("float16", 8, (2, 5, 3, 3), False, False),  # elements behind the last vector
        ("float32", 4, (3, 7, 1, 1), False, True),
        ("float64", 1, (2, 3, 5), True, False),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_each_element_gets_its_channels_number(
    dtype: str, width: int, shape: tuple[int, ...], uniform: bool, long: bool, last: bool
) -> None:
    random = np.random.default_rng(0)
    Y, B = random.standard_normal(shape).astype(dtype), random.standard_normal(shape[1]).astype(dtype)
    expected = (Y.astype(float) + B.astype(float).reshape(-1, *[1] * (Y.ndim - 2))).astype(dtype)
    if last:
        Y, expected = (np.moveaxis(each, 1, -1) for each in (Y, expected))
    held, bias = hold(np.ascontiguousarray(Y).reshape(1, -1)), hold(B.reshape(1, -1))
    inner = 1 if last else Y[0, 0].size
    arguments = tuple(np.int64(each) for each in (held.address, bias.address, Y.size, inner, len(B)))
    kernel = build(dtype, width, 2, uniform and not last, long, True)
    simulated.launch(kernel, -(-Y.size // (width * 2 * 32)), 32, 1, 0, arguments)
    held.memory.check()
    assert np.array(held.array).reshape(Y.shape).tobytes() == np.ascontiguousarray(expected).tobytes()
