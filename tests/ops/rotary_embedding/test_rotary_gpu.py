"""Rotary embeddings on a GPU against float64: types, forms, orders of memory, in place, large arrays."""

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


@pytest.mark.parametrize("operator", ["RotaryEmbedding", "RotaryEmbeddingGrad"])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("dtype", "table"), [("bfloat16", "float32"), ("float16", "float16"), ("float64", "float64")])
@pytest.mark.parametrize(("elements", "half"), [(128, 64), (10, 3), (96, 24)])
def test_every_form(operator: str, interleaved: int, dtype: str, table: str, elements: int, half: int) -> None:
    random = np.random.default_rng(0)
    data, result = ("dY", "dX") if operator.endswith("Grad") else ("X", "Y")
    inputs = {data: random.standard_normal((3, 5, 70, elements)).astype(dtype)}
    inputs |= {name: random.uniform(-1, 1, (101, half)).astype(table) for name in ("cos_cache", "sin_cache")}
    inputs["position_ids"] = random.integers(0, 101, (3, 70))
    expected = reference(operator, inputs, {"interleaved": interleaved})[result]
    tensors = {name: there(each) for name, each in inputs.items()}
    heads_inside = tensors[data].transpose(1, 2).contiguous().transpose(1, 2)
    for each in (tensors[data], heads_inside):
        given: dict[str, Any] = {**tensors, data: each, "interleaved": interleaved}
        found = getattr(run_any(operator, **given), result)
        assert found.stride() == each.stride()
        assert_close(operator, result, back(found), expected)
        again = getattr(run_any(operator, **given, out={result: each}), result)
        assert again is each
        assert back(again).tobytes() == back(found).tobytes()


def test_more_elements_than_32_bits_can_count() -> None:
    import torch

    shape = (1 << 12, 65, 1 << 7, 1 << 7)
    if torch.cuda.mem_get_info()[0] < 2 * 2 * int(np.prod(shape)) + (1 << 30):
        pytest.skip("the GPU has too little free memory")
    X = torch.ones(shape, dtype=torch.bfloat16, device="cuda")
    cos = torch.zeros((shape[0], shape[2], shape[3] // 2), dtype=torch.bfloat16, device="cuda")
    sin = torch.ones_like(cos)
    found: Any = gradkern.run("RotaryEmbedding", X, cos, sin).Y
    assert bool((found[..., :64] == -1).all())
    assert bool((found[..., 64:] == 1).all())
