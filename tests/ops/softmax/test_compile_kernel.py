"""The kernels of softmax's gradients compile for every type, layout and architecture without a spilled register."""

from __future__ import annotations

from itertools import cycle, product

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

from gradkern.call import Call, Tensor
from gradkern.policy import Policy
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.ops.softmax.cuda.plan import plan

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SOFTMAX, LOG = "SoftmaxGrad_13", "LogSoftmaxGrad_13"
Kind = tuple[str, str, str, tuple[int, ...], int]
LAST = [(1 << 16, 8), (1 << 16, 128), (1 << 16, 768), (1 << 12, 4096), (1 << 12, 16384), (256, 1 << 16), (16, 1 << 20)]
SHIFTED = [(1 << 16, 129), (1 << 12, 1001), (1 << 12, 4097), (256, 65535)]
ACROSS = [(16, 3, 1 << 16), (16, 21, 1 << 16), (64, 128, 4096), (16, 1000, 256), (4, 5000, 64), (64, 100, 49)]
KINDS: list[Kind] = [
    *((operator, dtype, dtype, shape, 1) for operator, dtype, shape in
      product((SOFTMAX, LOG), (b, f, d), [*LAST, *SHIFTED, *ACROSS])),
    *((SOFTMAX, f, h, shape, 1) for shape in (LAST[3], SHIFTED[2], ACROSS[2])),
    (SOFTMAX, h, h, SHIFTED[1], 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [
            *product([*KINDS[::7], (SOFTMAX, b, b, SHIFTED[1], 1), KINDS[-1]], HOPPER),
            *zip(KINDS[3::19], cycle(OTHERS), strict=False),
        ],
        [*product(KINDS, HOPPER), *product(KINDS[::13], OTHERS)],
        covered=2,
    ),
)
def test_no_register_is_spilled_and_vectors_are_whole(kind: Kind, capability: tuple[int, int]) -> None:
    operator, given, result, shape, axis = kind
    data, made = (
        Tensor(np.dtype(each), shape, c_strides(shape, np.dtype(each).itemsize), 16) for each in (given, result)
    )
    axes = {"rows": shape[:axis], "columns": shape[axis:]}
    call = Call(
        operator, {"dY": data, "Y": data}, {"dX": made}, {"axis": axis}, axes, frozenset(), "cuda:0", Policy()
    )  # fmt: skip
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(call)
    (spec,) = device.specs
    compiled = made_of(spec)
    assert compiled.spilled == 0
    assert "ld.local" not in compiled.ptx
    whole = shape[-1] * np.dtype(given).itemsize % 16 == 0 or (shape in SHIFTED and given == result)
    assert ("ld.global.v4.b32" in compiled.ptx) == whole
