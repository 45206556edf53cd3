"""The kernel of resizing by whole factors compiles for every type and architecture without a spilled register."""

from __future__ import annotations

from itertools import cycle, product

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters
from memory_orders import strides_in_order

from gradkern.call import Call, Tensor
from gradkern.policy import Policy

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.ops.resize.cuda.plan import plan

pytestmark = pytest.mark.thorough

FACTORS = ((2,), (2, 2), (3, 3), (4, 4), (8, 8), (1, 2, 2), (2, 2, 2))
KINDS = [*product(FACTORS, ("nearest", "linear"), ("C", "channels_last"), ("bfloat16", "float32", "float64"))]


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[10::17], HOPPER), *zip(KINDS[5::30], cycle(OTHERS), strict=False)],
        [*product(KINDS, HOPPER), *product(KINDS[::7], OTHERS)],
        covered=2,
    ),
)
def test_no_register_is_spilled_and_vectors_are_whole(
    kind: tuple[tuple[int, ...], str, str, str], capability: tuple[int, int]
) -> None:
    factors, mode, order, dtype = kind
    shape = (2, 64, *(16,) * len(factors))
    out = tuple(16 * factor for factor in factors)

    def array(shape: tuple[int, ...]) -> Tensor:
        return Tensor(np.dtype(dtype), shape, strides_in_order(shape, np.dtype(dtype).itemsize, order), 16)

    given = {"mode": mode, "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
    given |= {"antialias": 0, "exclude_outside": 0, "cubic_coeff_a": -0.75}
    dY, dX = array((*shape[:2], *out)), array(shape)
    axes = {"spatial": shape[2:], "out": out}
    call = Call("ResizeGrad", {"dY": dY}, {"dX": dX}, given, axes, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(call)
    (spec,) = device.specs
    compiled = made_of(spec)
    assert compiled.spilled == 0
    assert "ld.local" not in compiled.ptx
    assert "ld.global.v4.b32" in compiled.ptx
