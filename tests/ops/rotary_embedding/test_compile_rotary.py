"""The kernels of rotary embeddings compile for every architecture without a spilled register, with whole vectors."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.call import Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.dispatch.run import dry_plan_for
from gradkern.strides import c_strides

pytestmark = pytest.mark.thorough

KINDS = [*product(("", "Grad"), [("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")], (0, 1))]


def tensor(dtype: str, *shape: int) -> Tensor:
    made = np.dtype(dtype)
    return Tensor(made, shape, c_strides(shape, made.itemsize), 256)


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(product(KINDS[:1], HOPPER), product(KINDS, [*HOPPER, *OTHERS]), covered=2),
)
def test_no_register_is_spilled(kind: tuple[str, tuple[str, str], int], capability: tuple[int, int]) -> None:
    way, (data, cache), interleaved = kind
    inputs = {"dY" if way else "X": tensor(data, 2, 4, 8, 128)}
    inputs |= {name: tensor(cache, 4096, 64) for name in ("cos_cache", "sin_cache")}
    inputs["position_ids"] = tensor("int64", 2, 8)
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        given: dict[str, Any] = {"device": "cuda:0", "interleaved": interleaved}
        dry_plan_for(f"RotaryEmbedding{way}", inputs, "cuda", **given)
    (spec,) = device.specs
    compiled = made_of(spec)
    assert compiled.spilled == 0
    assert "ld.local" not in compiled.ptx
    assert "ld.global.v4.b32" in compiled.ptx
