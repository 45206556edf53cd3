"""The kernel that copies between layouts under the CUDA simulator; test_simulated runs this file by itself."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from helpers.guarded import Guarded

from gradkern.call import Tensor
from gradkern.cuda.contiguous import copy_arguments
from gradkern.cuda.device_code import simulated
from gradkern.cuda.device_code.strided_copy import build

Order = tuple[int, ...]
C, LAST, FIRST = (0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 2, 3)


class Laid:
    """Guarded memory and an array in it whose axes lie in this order, slowest first, with gaps behind each axis."""

    def __init__(self, shape: tuple[int, ...], order: Order, gap: int, dtype: str) -> None:
        strides, step = [0] * len(shape), np.dtype(dtype).itemsize
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis] + gap
        self.held = Guarded((step // np.dtype(dtype).itemsize,), dtype)
        self.array = np.ndarray(shape, dtype, self.held.array, 0, tuple(strides))
        self.tensor = Tensor(np.dtype(dtype), shape, tuple(strides), 16)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "source", "target", "gaps", "turned"),
    [
        ((2, 5, 3, 7), LAST, C, (0, 0), True),
        ((2, 3, 9, 10), C, LAST, (0, 0), True),
        ((3, 70, 8, 9), LAST, C, (0, 0), True),  # more than a tile each way, and no whole number of them
        ((3, 4, 5, 6), C, C, (1, 0), False),
        ((3, 4, 5, 6), C, C, (0, 2), False),
        ((3, 4, 5, 6), FIRST, C, (0, 0), False),
        ((2, 3, 4, 5, 2, 3), (5, 3, 1, 0, 2, 4), (0, 1, 2, 3, 4, 5), (0, 1), True),
        ((2, 2, 2, 2, 2, 2, 2, 2), (7, 6, 5, 4, 3, 2, 1, 0), (0, 1, 2, 3, 4, 5, 6, 7), (1, 0), True),
        ((1, 9000), (0, 1), (0, 1), (0, 0), False),
        ((1,), (0,), (0,), (0, 0), False),
    ],
)
def test_every_element_goes_to_its_place(
    dtype: str, shape: tuple[int, ...], source: Order, target: Order, gaps: tuple[int, int], turned: bool
) -> None:
    there, here = Laid(shape, source, gaps[0], dtype), Laid(shape, target, gaps[1], dtype)
    there.array[...] = np.random.default_rng(prod(shape)).integers(-128, 128, shape)
    there.held.freeze()
    constants, tiles, arguments = copy_arguments(there.tensor, here.tensor)
    assert constants[:2] == (dtype, turned)
    arguments[:2] = there.held.address, here.held.address
    before = here.held.buffer.copy()
    grid = 1 if turned else 2  # Numba's simulator has one shared array for all blocks
    simulated.launch(build(*constants), grid, 64, 1, 0, tuple(np.int64(each) for each in arguments))
    np.testing.assert_array_equal(here.array, there.array)
    there.held.check()
    here.array[...] = np.ndarray(shape, dtype, before, here.held.start, here.array.strides)
    assert (here.held.buffer == before).all(), "what lies between and around the elements is untouched"
    assert tiles > 1 or prod(shape) < 5000


def test_an_array_whose_elements_share_memory_is_read() -> None:
    here = Laid((3, 4, 5, 6), LAST, 0, "float32")
    values = np.arange(12, dtype=np.float32).reshape(3, 4, 1, 1)
    spread = Tensor(np.dtype(np.float32), (3, 4, 5, 6), (16, 4, 0, 0), 16)
    constants, _, arguments = copy_arguments(spread, here.tensor)
    arguments[:2] = values.ctypes.data, here.held.address
    simulated.launch(build(*constants), 1, 64, 1, 0, tuple(np.int64(each) for each in arguments))
    np.testing.assert_array_equal(here.array, np.broadcast_to(values, here.array.shape))
