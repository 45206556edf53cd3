"""How rows must lie for kernels that step from one to the next by one distance: against NumPy's own addresses."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.call import Refusal, Tensor
from gradkern.cuda.rows import require_flat, row_stride

ITEMSIZE = 4
STEPS = (0, 4, 20, 32, 64, 96, 128, 192)


def addresses(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Of every element, in rows of the last axis."""
    places = sum(index * step for index, step in zip(np.indices(shape), strides, strict=True))
    return np.asarray(places).reshape(-1, shape[-1])


@pytest.mark.parametrize(
    "shape", [(8,), (4, 8), (1, 8), (3, 4, 8), (3, 1, 8), (1, 4, 8), (2, 3, 2, 8), (4, 1), (3, 4, 1)]
)
def test_every_row_is_where_the_distance_says_or_the_array_is_refused(shape: tuple[int, ...]) -> None:
    """Rows that repeat, which have a distance of zero, among them."""
    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    taken = 0
    for steps in product(STEPS, repeat=len(shape) - 1):
        for last in (4, 0, 8):
            strides = (*steps, last)
            real = addresses(shape, strides)
            fits = columns == 1 or last == ITEMSIZE
            apart = {int(each) for each in np.diff(real[:, 0])}
            try:
                distance = row_stride("X", Tensor(np.dtype("float32"), shape, strides, 16), len(shape) - 1)
            except Refusal:
                assert not fits or len(apart) > 1, (shape, strides)
                continue
            taken += 1
            expected = np.arange(rows)[:, None] * distance + np.arange(columns) * ITEMSIZE
            np.testing.assert_array_equal(real, expected, err_msg=f"{shape} {strides}")
    assert taken


def test_an_address_that_no_access_is_aligned_to_is_refused() -> None:
    require_flat("X", Tensor(np.dtype("float32"), (3,), (4,), 4))
    with pytest.raises(Refusal, match="X: an element's address is no multiple of 4"):
        require_flat("X", Tensor(np.dtype("float32"), (3,), (4,), 2))


@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (2, 0, 3), (3, 2, 0)])
def test_an_empty_array_has_a_layout_of_any_strides(shape: tuple[int, ...]) -> None:
    """NumPy and PyTorch have strides for empty arrays of their own, as for sizes of 1 in place of 0."""
    for strides in (np.empty(shape, np.float32).strides, tuple(range(4, 4 * len(shape) + 4, 4))):
        tensor = Tensor(np.dtype("float32"), shape, strides, 16)
        require_flat("X", tensor)
        assert row_stride("X", tensor, 1) == 0
