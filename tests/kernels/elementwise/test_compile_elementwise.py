"""The kernels of the element-wise block compile for every operator and type without a spilled register."""

from __future__ import annotations

from importlib import import_module
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

import gradkern
from gradkern.arrays.host import NUMPY
from gradkern.arrays.kind import View, dtype_of
from gradkern.call import Call, Tensor
from gradkern.contract.check import check
from gradkern.contract.examples import complete
from gradkern.contract.request import Views, request_of
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example
from gradkern.policy import Policy
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run

pytestmark = pytest.mark.thorough

FAMILIES = ("dropout", "scaling", "finite", "gated")
OPERATORS = [name for name, each in gradkern.operators().items() if each.family in FAMILIES]
KINDS = [*product([*OPERATORS, "SoftmaxDropoutGrad"], ("bfloat16", "float32", "float64"), (False, True))]
"""An operator, a type, and whether rows are at a distance."""
WHOLE = ("IsAllFinite", "ReduceAllL2")  # whose elements are adjacent


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::5], HOPPER), *zip(KINDS[1::6], cycle(OTHERS), strict=False)],
        [*product(KINDS, HOPPER), *product(KINDS[::13], OTHERS)],
        covered=2,
    ),
)
def test_no_register_is_spilled_and_vectors_are_whole(kind: tuple[str, str, bool], capability: tuple[int, int]) -> None:
    name, dtype, apart = kind
    operator = gradkern.operators()[name]
    sizes: dict[str, Any] = {"rows": (64,), "columns": (1024,)} if name.startswith("Softmax") else {"sizes": (64, 1024)}
    if name == "DivGrad":
        sizes |= {"a": (64, 1024), "b": (64, 1) if apart else (64, 1024)}
    required: dict[str, Any] = {key: 1 for key, each in operator.attributes.items() if each.required}
    example = complete(operator, Example(axes=sizes, attributes=required))
    row = next(each for each in operator.combinations if each[operator.data.type] == dtype)
    arrays = inputs_of(operator, row, example, np.random.default_rng(0))
    views: dict[str, View] = {}
    for key, each in arrays.items():
        far = apart and each.ndim == 2 and each.shape[1] == 1024
        strides = (each.strides[0] * 2, each.strides[1]) if far and name not in WHOLE else each.strides
        views[key] = View(Tensor(each.dtype, each.shape, strides, 16), None, "cuda:0", NUMPY)
    request = request_of(
        name,
        (),
        {**{key: each.tensor for key, each in views.items()}, **required},
        [each.name for each in operator.outputs],
    )
    call = check(request, Views(views, {}, frozenset()), Policy(), None)
    module = import_module(f"gradkern.ops.{operator.family}.{operator.providers['cuda'][0]}")
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        module.plan(call)
    for spec in device.specs:
        compiled = made_of(spec)
        assert compiled.spilled == 0
        assert "ld.local" not in compiled.ptx
        assert "ld.global.v4.b32" in compiled.ptx or name.startswith("Softmax") or "sum" in spec.name


QUOTIENTS = [("bfloat16", (64, 1)), ("float32", (1024,)), ("float64", ())]
"""A type, and the shape of B, which is broadcast."""


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(zip(QUOTIENTS, OTHERS, strict=False), product(QUOTIENTS, [*HOPPER, *OTHERS])),
)
def test_both_gradients_of_a_quotient_are_one_pass(kind: tuple[str, Any], capability: tuple[int, int]) -> None:
    dtype = dtype_of(kind[0])
    dY, B = (Tensor(dtype, each, c_strides(each, dtype.itemsize), 16) for each in ((64, 1024), kind[1]))
    inputs, outputs = {"dY": dY, "A": dY, "B": B}, {"dA": dY, "dB": B}
    call = Call("DivGrad", inputs, outputs, {}, {"sizes": dY.shape}, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan = import_module("gradkern.ops.scaling.cuda.plan").plan(call)
    first, *others = device.specs
    assert len(others) == len(plan.launches) - 1 <= 1  # the second adds up parts
    for spec in device.specs:
        assert (made_of(spec).spilled, "ld.local" in made_of(spec).ptx) == (0, False)
    assert made_of(first).ptx.count("ld.global.v4.b32") >= 8
    assert "st.global.v4.b32" in made_of(first).ptx


MANY = [("bfloat16", "ReduceAllL2"), ("float16", "MixedPrecisionScale"), ("float64", "ReduceAllL2")]


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(product(MANY[:2], HOPPER), product(MANY, [*HOPPER, *OTHERS])),
)
def test_a_launch_of_many_arrays_spills_no_register(kind: tuple[str, str], capability: tuple[int, int]) -> None:
    tensors = {
        f"X_{n}" if n else "X": Tensor(dtype_of(kind[0]), (4096,), c_strides((4096,), dtype_of(kind[0]).itemsize), 16)
        for n in range(40)
    }
    views = {name: View(each, None, "cuda:0", NUMPY) for name, each in tensors.items()}
    more: dict[str, Any] = {"S": 2.0, "to": "float32"} if kind[1] == "MixedPrecisionScale" else {}
    call = check(request_of(kind[1], (), {**tensors, **more}), Views(views, {}, frozenset()), Policy(), None)
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan = import_module(f"gradkern.ops.{gradkern.operators()[kind[1]].family}.cuda.plan").plan(call)
    assert len(plan.launches) == 2 + (kind[1] == "ReduceAllL2")  # of up to 32 arrays each, and the sum
    for spec in device.specs:
        assert (made_of(spec).spilled, "ld.local" in made_of(spec).ptx) == (0, False)
