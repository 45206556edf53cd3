"""Pools and resizing on a GPU against the CPU provider: types, orders of memory, repeats, large arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.examples import attributes_of, sample
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

import gradkern
from gradkern.contract.schema import Example, shape_of

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

OPERATORS: dict[Any, Any] = {
    name: each for name, each in gradkern.operators().items() if each.family in ("pooling", "resize")
}


def examples(operator: Any) -> list[Example]:
    few = [each for each in operator.benchmarks if math.prod(shape_of(operator.inputs[0].shape, each.axes)) < 1 << 24]
    return [*operator.examples, *few]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_type_and_order(name: str, last: bool) -> None:
    operator = OPERATORS[name]
    for number, row in enumerate(operator.combinations):
        for example in examples(operator) if number == 0 else operator.examples:
            inputs, attributes = sample(operator, row, example), attributes_of(operator, row, example)
            expected = run_any(name, **inputs, **attributes)
            tensors = {key: there(each, last and each.ndim > 2) for key, each in inputs.items()}
            found: Any = run_any(name, **tensors, **attributes)
            again: Any = run_any(name, **tensors, **attributes)
            for key, each in found._asdict().items():
                wide = np.asarray(getattr(expected, key))
                assert_close(name, key, back(each), wide if wide.dtype.kind in "iu" else wide.astype(np.float64))
                assert back(each).tobytes() == back(getattr(again, key)).tobytes()


def test_more_elements_than_32_bits_can_count() -> None:
    import torch

    shape = (3, 1 << 18, 64, 64)  # 3.2e9 elements in 16 bits
    if torch.cuda.mem_get_info()[0] < 9 << 30:
        pytest.skip("the GPU has too little free memory")
    dY = torch.zeros((*shape[:2], 32, 32), dtype=torch.bfloat16, device="cuda")
    dY[-1, -1, -1, -1] = 1
    Indices = torch.full(dY.shape, 3, dtype=torch.uint8, device="cuda")
    window: dict[str, Any] = {"input_size": (64, 64), "kernel_shape": (2, 2), "strides": (2, 2)}
    dX: Any = gradkern.run("MaxPoolGrad", dY, Indices, **window).dX
    assert dX[-1, -1, -1, -1].item() == 1
    assert dX.sum(dtype=torch.float32).item() == 1
    del dX, Indices
    dX = gradkern.run("AveragePoolGrad", dY, **window).dX
    assert dX[-1, -1, -2:, -2:].sum().item() == 1
    assert dX.sum(dtype=torch.float32).item() == 1


@pytest.mark.parametrize("index", [-1, 1 << 40, -(1 << 62)])
def test_indices_that_no_forward_pass_makes_reach_no_other_memory(index: int) -> None:
    import torch

    dY = torch.ones((2, 8, 16, 16), device="cuda")
    around = torch.full((3, 2, 8, 32, 32), 7.0, device="cuda")
    window: dict[str, Any] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    gradkern.run("MaxPoolGrad", dY, torch.full_like(dY, index, dtype=torch.int64), **window, out={"dX": around[1]})
    torch.cuda.synchronize()
    assert (around[::2] == 7).all()
