"""The steps of a batch norm over a batch in parts, from their plans to the results, under the CUDA simulator."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.reference import reference
from helpers.simulate_plans import addresses, arrays, device_in_python, tensors
from helpers.tolerance import assert_close

import gradkern
from gradkern.arrays.kind import dtype_of
from gradkern.call import Call
from gradkern.cuda.device import Device
from gradkern.ops.batch_norm.cuda.parts import plan as plan_of
from gradkern.policy import Policy

STEPS = ["BatchNormalizationStatistics", "BatchNormalizationFromStatistics", "BatchNormalizationGradSums"]
LAYOUTS = [  # planes, vectors of two planes, columns, vectors of two rows, large planes, single elements
    ((4, 3, 5, 8), False),
    ((4, 3, 5, 7), False),
    ((9, 24, 3, 3), True),
    ((6, 5, 3, 3), True),
    ((70, 24), False),
    ((3, 2, 1201), False),
    ((1, 7), False),
]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return device_in_python(monkeypatch, threads=32)


@pytest.mark.parametrize(("sizes", "last"), LAYOUTS, ids=str)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", pytest.param("float64", marks=pytest.mark.every_kernel)])
def test_every_order(device: Device, name: str, sizes: tuple[int, ...], last: bool, dtype: str) -> None:
    operator, channels, random = gradkern.operators()[name], sizes[1], np.random.default_rng(0)
    wide = np.dtype("float64" if dtype == "float64" else "float32")
    given = {
        each.name: random.standard_normal(sizes).astype(dtype_of(dtype)) + dtype_of(dtype).type(3)
        if "N" in each.shape
        else random.uniform(0.5, 2, channels).astype(wide)
        for each in operator.inputs
    }
    exact = reference(name, given)
    outputs = {
        each.name: (sizes, dtype_of(dtype)) if each.like == "X" else (exact[each.name].shape, wide)
        for each in operator.outputs
    }
    read, write = arrays(given, outputs, last)
    for held, _, _ in read.values():
        held.freeze()
    plan = plan_of(Call(name, tensors(read), tensors(write), {}, {}, frozenset(), "cuda:0", Policy()))
    plan(addresses(read), addresses(write), 0)
    for held, _, _ in (*read.values(), *write.values()):
        held.check()
    for key, (_, array, _) in write.items():
        assert_close(name, key, np.array(array), exact[key])
