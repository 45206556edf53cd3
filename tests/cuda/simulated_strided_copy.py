"""The kernel that copies between layouts under the CUDA simulator."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from helpers import simulated
from helpers.guarded import Guarded

from gradkern.call import Tensor
from gradkern.cuda.contiguous import _SHARED, copy_arguments
from gradkern.cuda.device_code.strided_copy import build

Order = tuple[int, ...]
C, LAST, FIRST = (0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 2, 3)


class Laid:
    """Guarded memory and an array in it whose axes lie in this order, slowest first, with gaps behind each axis, some
    axes backwards, and so many bytes after a multiple of 16.
    """

    def __init__(
        self, shape: tuple[int, ...], order: Order, gap: int, dtype: str, backwards: Order = (), offset: int = 0
    ) -> None:
        strides, step = [0] * len(shape), np.dtype(dtype).itemsize
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis] + gap
        self.held = Guarded((step // np.dtype(dtype).itemsize,), dtype, offset)
        here = tuple(slice(None, None, -1 if axis in backwards else 1) for axis in range(len(shape)))
        self.array = np.ndarray(shape, dtype, self.held.array, 0, tuple(strides))[here]
        self.address = self.array.__array_interface__["data"][0]
        alignment = next(each for each in (16, 8, 4, 2, 1) if self.address % each == 0)
        self.tensor = Tensor(np.dtype(dtype), shape, self.array.strides, alignment)


def copy(source: Tensor, read: int, target: Laid) -> tuple[Any, ...]:
    """Copy what lies at this address; the constants of the kernel that did it."""
    constants, tiles, arguments = copy_arguments(source, target.tensor)
    arguments[:2] = read, target.address
    memory = _SHARED if constants[1] else 0
    simulated.launch(build(*constants), tiles, 64, 1, memory, tuple(np.int64(each) for each in arguments))
    return constants


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "source", "target", "gaps", "turned"),
    [
        ((2, 5, 3, 7), LAST, C, (0, 0), True),
        ((2, 3, 9, 10), C, LAST, (0, 0), True),
        ((3, 70, 8, 9), LAST, C, (0, 0), True),
        ((2, 24, 6, 8), C, LAST, (0, 0), True),  # whole vectors on both sides
        ((1, 200, 3, 96), C, LAST, (0, 0), True),  # more than a tile each way, and no whole number of them
        ((1, 150, 13, 15), LAST, C, (0, 0), True),
        ((2, 12, 4, 5), C, LAST, (0, 4), True),
        ((3, 4, 5, 6), C, C, (1, 0), False),
        ((3, 4, 5, 6), C, C, (0, 2), False),
        ((3, 4, 6, 8), C, C, (0, 8), False),
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
    check(there, here, turned)


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("order", [C, LAST])
@pytest.mark.parametrize(("there", "here"), [((3,), ()), ((), (3,)), ((1, 2), (0,)), ((0, 1, 2, 3), (1,))])
def test_axes_may_run_backwards(dtype: str, order: Order, there: Order, here: Order) -> None:
    shape = (2, 16, 4, 8)
    check(Laid(shape, order, 0, dtype, there), Laid(shape, C, 0, dtype, here), None)


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("order", [C, LAST])
@pytest.mark.parametrize("offsets", [(8, 0), (0, 8), (24, 8)])
def test_an_array_may_begin_anywhere(dtype: str, order: Order, offsets: tuple[int, int]) -> None:
    shape = (2, 16, 4, 8)
    there, here = Laid(shape, order, 8, dtype, offset=offsets[0]), Laid(shape, C, 8, dtype, offset=offsets[1])
    check(there, here, order == LAST)


def check(there: Laid, here: Laid, turned: bool | None) -> None:
    """Copy random bits from one to the other: all arrive, and nothing else is written."""
    dtype, shape = there.array.dtype, there.array.shape
    most = 2 if dtype.kind == "b" else 256
    bits = np.random.default_rng(prod(shape)).integers(0, most, (*shape, dtype.itemsize), np.uint8)
    there.array[...] = bits.view(dtype)[..., 0]
    there.held.freeze()
    before = here.held.buffer.copy()
    constants = copy(there.tensor, there.address, here)
    assert constants[0] == dtype.itemsize
    assert turned is None or constants[1] == turned
    integer = f"uint{8 * dtype.itemsize}"
    np.testing.assert_array_equal(here.array.view(integer), there.array.view(integer))  # NaN's bits, too
    there.held.check()
    place = here.address - here.held.address + here.held.start
    here.array[...] = np.ndarray(shape, dtype, before, place, here.array.strides)
    assert (here.held.buffer == before).all(), "what lies between and around the elements is untouched"


def test_offsets_of_64_bits_lead_to_the_same_places() -> None:
    there, here = Laid((1, 200, 3, 16), C, 0, "float16"), Laid((1, 200, 3, 16), LAST, 0, "float16")
    there.array[...] = np.arange(9600).reshape(there.array.shape) % 2039
    constants, tiles, arguments = copy_arguments(there.tensor, here.tensor)
    arguments[:2] = there.address, here.address
    kernel = build(*constants[:-1], True)
    simulated.launch(kernel, tiles, 64, 1, _SHARED, tuple(np.int64(each) for each in arguments))
    np.testing.assert_array_equal(here.array, there.array)


def test_an_array_whose_elements_share_memory_is_read() -> None:
    here = Laid((3, 4, 5, 6), LAST, 0, "float32")
    values = np.arange(12, dtype=np.float32).reshape(3, 4, 1, 1)
    spread = Tensor(np.dtype(np.float32), (3, 4, 5, 6), (16, 4, 0, 0), 16)
    copy(spread, values.ctypes.data, here)
    np.testing.assert_array_equal(here.array, np.broadcast_to(values, here.array.shape))
