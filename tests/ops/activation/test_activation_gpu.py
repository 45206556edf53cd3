"""The gradients of activations on a GPU against float64: types, orders of memory, sizes, in place, large arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.reference import reference
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

import gradkern

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

OPERATORS = [name for name, each in gradkern.operators().items() if each.family == "activation"]


def operands(operator: str, shape: tuple[int, ...], dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    dY, seen = random.standard_normal((2, *shape))
    names = [each.name for each in gradkern.operators()[operator].inputs]
    seen = 1 / (1 + np.exp(-seen)) if operator == "SigmoidGrad" else 3 * seen
    if operator.startswith("Dml"):
        dY, seen = np.round(4 * seen) / 4, dY  # Input comes first; at the limits, too
    return {names[0]: dY.astype(dtype), names[1]: seen.astype(dtype)}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1,), (1000, 1003), (2, 24, 5, 7)])
def test_every_type_and_order(operator: str, dtype: str, shape: tuple[int, ...]) -> None:
    inputs = operands(operator, shape, dtype)
    attributes: dict[str, Any] = {"Min": -0.75, "Max": 1.5} if "Clip" in operator else {}
    (expected,) = reference(operator, inputs, attributes).values()
    (name,) = (each.name for each in gradkern.operators()[operator].outputs)
    for last in {False, len(shape) == 4}:
        tensors = {name: there(each, last) for name, each in inputs.items()}
        found: Any = getattr(run_any(operator, **tensors, **attributes), name)
        assert_close(operator, name, back(found), expected)
        dY = next(iter(tensors.values()))
        assert run_any(operator, **tensors, **attributes, out={name: dY})[0] is dY
        assert back(dY).tobytes() == back(found).tobytes()


def test_more_elements_than_32_bits_can_count() -> None:
    import torch

    size = (1 << 32) + 5
    if torch.cuda.mem_get_info()[0] < 3 * 2 * size + (1 << 30):
        pytest.skip("the GPU has too little free memory")
    dY = torch.ones(size, dtype=torch.bfloat16, device="cuda")
    X = torch.full((size,), -1.0, dtype=torch.bfloat16, device="cuda")
    X[-7:] = 1.0
    found: Any = gradkern.run("ReluGrad", dY, X).dX
    assert found[-7:].sum().item() == 7
    assert int(torch.count_nonzero(found)) == 7
