"""The kernels of activations' gradients compile for every type and architecture without a spilled register."""

from __future__ import annotations

from itertools import cycle, product

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

import gradkern
from gradkern.call import Call, Tensor
from gradkern.policy import Policy
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.ops.activation.cuda.plan import plan

pytestmark = pytest.mark.thorough

OPERATORS = [name for name, each in gradkern.operators().items() if each.family == "activation"]
KINDS = [*product(OPERATORS, ("bfloat16", "float32", "float64"))]


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::4], HOPPER), *zip(KINDS[1::5], cycle(OTHERS), strict=False)],
        [*product(KINDS, HOPPER), *product(KINDS[::3], OTHERS)],
    ),
)
def test_no_register_is_spilled_and_vectors_are_whole(kind: tuple[str, str], capability: tuple[int, int]) -> None:
    operator, dtype = kind
    shape = (64, 1001)
    data = Tensor(np.dtype(dtype), shape, c_strides(shape, np.dtype(dtype).itemsize), 16)
    contract = gradkern.operators()[operator]
    attributes = {name: float(each.default or 1) for name, each in contract.attributes.items()}
    inputs = {each.name: data for each in contract.inputs}
    outputs = {each.name: data for each in contract.outputs}
    call = Call(operator, inputs, outputs, attributes, {"sizes": shape}, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(call)
    (spec,) = device.specs
    compiled = made_of(spec)
    assert compiled.spilled == 0
    assert "ld.local" not in compiled.ptx
    assert "ld.global.v4.b32" in compiled.ptx
