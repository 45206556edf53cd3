"""Arrays that no kernel takes as they lie: which of them are copied, and the kernel that does it, compiled."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.call import Call, Tensor
from gradkern.cuda.contiguous import _BLOCKS, _SHARED, _THREADS, copy_arguments, wrap
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.policy import DEFAULT
from gradkern.strides import c_strides

SHAPE = (4, 32, 6, 5)
LAST = (32 * 30 * 2, 2, 32 * 5 * 2, 32 * 2)
FIRST = c_strides(SHAPE, 2)


class Stub:
    """Stands for the plan of a call whose arrays lie well."""

    kernel, scratch = "kernel", 0


def copied(taken: Callable[[Call], bool] = lambda _: True, **orders: tuple[int, ...]) -> str:
    """The kernel for arrays that lie so, where a kernel takes a call, or else copies in C order."""
    tensors = {name: Tensor(np.dtype(np.float16), SHAPE, strides, 16) for name, strides in orders.items()}
    scale = Tensor(np.dtype(np.float32), (32,), (4,), 16)
    outputs = {"dX": tensors["X"]}
    inputs = {**tensors, "Scale": scale}
    call = Call("BatchNormalizationGrad", inputs, outputs, {}, {}, frozenset(), "cuda:0", DEFAULT)

    def make(asked: Call) -> Any:
        return Stub() if taken(asked) else wrap(asked, make)

    with dry_run(DryRunDevice(0, (9, 0), 132, 232448)):
        found = wrap(call, make)
    return "" if found is None else found.kernel


def test_as_little_is_copied_as_makes_all_lie_alike() -> None:
    gaps = (FIRST[0] * 2, *FIRST[1:])
    assert copied(dY=FIRST, X=FIRST) == ""
    assert copied(dY=FIRST, X=LAST, dY2=LAST) == "kernel with copies of dY"
    assert copied(dY=LAST, X=LAST, dY2=FIRST) == "kernel with copies of dY2"
    assert copied(dY=LAST, X=FIRST) == "kernel with copies of dY"  # dX lies as X does
    assert copied(dY=gaps, X=LAST, dY2=LAST) == "kernel with copies of dY"
    assert copied(dY=gaps, X=gaps) == "kernel with copies of dY, X, dX"


def test_where_a_kernel_takes_c_order_alone_all_others_are_copied() -> None:
    def taken(asked: Call) -> bool:
        return all(each.strides == c_strides(each.shape, each.dtype.itemsize) for each in asked.inputs.values())

    assert copied(taken, dY=LAST, X=LAST, dY2=FIRST) == "kernel with copies of dY, X, dX"


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize(
    "shape", [(2, 96, 112, 112), (2, 1152, 7, 7), (2, 3, 224, 224), (1, 144, 56, 56), (9, 130, 2, 3)]
)
def test_a_turned_tile_has_whole_accesses_and_fits_its_memory(shape: tuple[int, ...], size: int) -> None:
    batch, channels, *positions = shape
    first = c_strides(shape, size)
    last = (first[0], size, positions[1] * channels * size, channels * size)
    tensors = [Tensor(np.dtype(f"float{8 * size}"), shape, each, 16) for each in (first, last)]
    for source, target in (tensors, tensors[::-1]):
        (_, turned, read, written, _), tiles, arguments = copy_arguments(source, target)
        rows, columns, high, wide, _, _, _, _, pitch, group = arguments[2:12]
        assert turned
        assert {rows, columns} == {channels, positions[0] * positions[1]}
        assert tiles == batch * -(-rows // high) * -(-columns // wide)
        assert rows % read == high % read == columns % written == wide % written == 0
        assert wide * size <= pitch
        assert pitch % (written * size) == 0
        assert high // read * group <= _SHARED


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [(("float16", True, 8), HOPPER[0])],
        product(
            [*product(("float16", "float32", "float64"), (True, False), (8, 7)), ("float16", True, 4)],
            [*HOPPER, *OTHERS],
        ),
    ),
)
def test_no_register_is_spilled(kind: tuple[str, bool, int], capability: tuple[int, int]) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.cuda.device_code.strided_copy import build

    dtype, turned, side = kind
    shape, size = (4, side * side, side, side), np.dtype(dtype).itemsize
    first = c_strides(shape, size)
    last = (first[0], size, side**3 * size, side**2 * size)
    gaps = (first[0] * 2, *first[1:])
    source, target = (Tensor(np.dtype(dtype), shape, each, 16) for each in (last if turned else gaps, first))
    constants, _, arguments = copy_arguments(source, target)
    assert constants[:2] == (size, turned)
    width = {8: 16 // size, 7: 1, 4: 16 // size}[side]
    assert constants[2:4] == (width, width)
    made = compile_kernel(build(*constants), len(arguments), capability, _THREADS, _BLOCKS)
    assert made.spilled == 0
    assert ".local" not in made.ptx
    assert ("bar.sync" in made.ptx) == turned
    if width * size == 16:
        assert "ld.global.v4.b32" in made.ptx
        assert "st.global.v4.b32" in made.ptx
