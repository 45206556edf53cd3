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
from gradkern.cuda.contiguous import copy_arguments, wrap
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([(("bfloat16", True), HOPPER[0])], product(product(("float32", "float64"), (True, False)), OTHERS)),
)
def test_no_register_is_spilled(kind: tuple[str, bool], capability: tuple[int, int]) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.cuda.device_code.strided_copy import build

    dtype, turned = kind
    strides = [np.array(each) // 2 * np.dtype(dtype).itemsize for each in (LAST, FIRST)]
    source, target = (Tensor(np.dtype(dtype), SHAPE, tuple(map(int, each)), 16) for each in strides)
    constants, _, arguments = copy_arguments(source if turned else target, target)
    assert constants[1] == turned
    made = compile_kernel(build(*constants), len(arguments), capability, 256)
    assert made.spilled == 0
    assert ("bar.sync" in made.ptx) == turned
