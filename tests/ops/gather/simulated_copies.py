"""The kernels of FlattenAndUnpad and SliceGrad under the CUDA simulator; test_simulated runs this file in its own
process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.held import Held, hold
from helpers.simulate_elementwise import simulate

from gradkern.call import Refusal

b, h, f, d = "bfloat16", "float16", "float32", "float64"


@pytest.mark.parametrize(("dtype", "columns"), [("bfloat16", 24), ("float32", 3), ("int64", 1), ("float16", 7)])
def test_rows_are_copied_and_those_out_of_range_are_0(dtype: str, columns: int) -> None:
    data = np.random.default_rng(0).integers(-9, 9, (3, 5, columns)).astype(dtype)
    indices = np.array([14, 0, 15, 7, -1, 7, 1 << 33])
    found = simulate("FlattenAndUnpad", {"input": data, "indices": indices})["output"]
    expected = data.reshape(15, columns)[np.clip(indices, 0, 14)]
    expected[[2, 4, 6]] = 0
    np.testing.assert_array_equal(found, expected)


SLICES: list[tuple[Any, ...]] = [  # type, shape of the data, along each of its dimensions start, stop and step
    (b, (3, 4, 40), (None, (1, 3, 1), None)),  # two dimensions are one
    (b, (5, 48), (None, (16, 40, 1))),  # vectors of both
    (h, (5, 48), (None, (3, 40, 1))),  # vectors of dX alone
    (f, (5, 48), ((4, 1, -2), (2, 40, 1))),
    (b, (33,), ((30, 3, -3),)),
    (d, (7, 5), ((1, 7, 5), (4, None, -1))),
    (f, (2, 3, 4, 5), ((1, 2, 1), (0, 3, 2), (3, 0, -1), (1, 4, 1))),
    (h, (2, 3, 2, 3, 2, 3, 2, 4), ((0, 1, 1), (0, 3, 2)) * 3 + ((0, 1, 1), (2, 4, 1))),
    (b, (9, 8), (None, (2, 3, 1))),
    (f, (), ()),
]


@pytest.mark.parametrize(("dtype", "shape", "cuts"), SLICES)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_slice_gets_the_gradient_and_the_rest_is_0(dtype: str, shape: Any, cuts: Any, swapped: bool) -> None:
    """swapped: the first dimension of both is the fastest in memory."""
    expected = np.zeros(shape, dtype)
    read = tuple(slice(*cut) if cut else slice(None) for cut in cuts)
    dY = np.random.default_rng(0).standard_normal(expected[read].shape).astype(dtype)
    expected[read] = dY
    order = (*range(1, len(shape)), 0) if swapped and shape else None
    into = {"dX": Held(shape, dtype, axes=order)}
    axes = [n for n, cut in enumerate(cuts) if cut]
    starts, ends, steps = ([cuts[n][m] for n in axes] for m in range(3))
    ends = [-1 - shape[n] if each is None else each for n, each in zip(axes, ends, strict=True)]
    how = {"shape": list(shape), "starts": starts, "ends": ends, "axes": axes, "steps": steps}
    found = simulate("SliceGrad", {"dY": hold(dY, axes=order)}, None, into, **how)["dX"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("how", [{"spread": 3}, {"offset": 1}])
def test_gaps_in_the_gradient_and_any_alignment(how: dict[str, int]) -> None:
    dY = np.random.default_rng(0).standard_normal((3, 16)).astype(h)
    expected = np.zeros((3, 32), h)
    expected[:, 16:] = dY
    named = {"shape": [3, 32], "starts": [16], "ends": [32], "axes": [1]}
    into = {"dX": Held((3, 32), h, offset=how.get("offset", 0))}
    found = simulate("SliceGrad", {"dY": hold(dY, **how)}, None, into, **named)
    np.testing.assert_array_equal(found["dX"], expected)


def test_a_gradient_in_another_order_of_memory_is_copied_first() -> None:
    dY = hold(np.ones((4, 5), f), axes=(1, 0))
    with pytest.raises(Refusal, match="dY: it is not in the memory order of dX; pass a contiguous copy"):
        simulate("SliceGrad", {"dY": dY}, shape=[4, 9], starts=[2], ends=[7], axes=[1])
