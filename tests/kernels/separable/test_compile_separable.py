"""The kernels of pools and resizing compile for every type and architecture without a spilled register."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters
from memory_orders import strides_in_order

from gradkern.call import Call, Tensor
from gradkern.kernels.separable.axis_map import Adaptive, Resampling, Windows
from gradkern.policy import Policy

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.kernels.separable.plan import separable_plan
from gradkern.ops.pooling.cuda.plan import plan

pytestmark = pytest.mark.thorough

MAPS: dict[str, Any] = {
    "windows": Windows(112, 56, 3, 2, 1, 1, 1),
    "dilated": Windows(112, 56, 3, 2, 2, 2, 2),
    "adaptive": Adaptive(100, 7),
    **{mode: Resampling(112, 56, mode, 0.5, 2.0, 1.0, -0.5) for mode in ("nearest", "linear", "cubic")},
    "inside": Resampling(112, 56, "cubic", 0.5, 2.0, 1.1, -0.5, excluded=True, bounded=True),
    "antialiased": Resampling(112, 56, "cubic", 0.5, 2.0, 1.0, -0.5, excluded=True, narrowing=0.5),
    "lanczos": Resampling(112, 56, "lanczos", 0.5, 2.0, 1.0, -0.5, excluded=True, narrowing=0.5),
}
POOLS = [
    "MaxPool",
    "MaxPool uint8",
    "MaxPool far",
    "MaxPoolGrad",
    "MaxPoolGrad uint8",
    "MaxPoolGrad uint8 dilated",
    "MaxPoolGrad far",
    "MaxPool 3-D",
    "MaxPoolGrad 3-D",
    "MaxPoolGrad uint8 3-D",
]
KINDS = [*product((*MAPS, *POOLS), ("C", "channels_last"), ("bfloat16", "float32", "float64"))]


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::7], HOPPER), *zip(KINDS[1::9], cycle(OTHERS), strict=False)],
        [*product(KINDS, HOPPER), *product(KINDS[::11], OTHERS)],
        covered=2,
    ),
)
def test_no_register_is_spilled_and_vectors_are_whole(kind: tuple[str, str, str], capability: tuple[int, int]) -> None:
    name, order, dtype = kind

    def array(shape: tuple[int, ...], dtype: str) -> Tensor:
        return Tensor(np.dtype(dtype), shape, strides_in_order(shape, np.dtype(dtype).itemsize, order), 16)

    axis = MAPS.get(name)
    operator, *words = name.split() if axis is None else ("ResizeGrad",)
    rank = 3 if "3-D" in words else 2
    small, large = (4, 64, *[axis.output if axis else 56] * rank), (4, 64, *[axis.input if axis else 112] * rank)
    values = {"dY": array(small, dtype)} if "Grad" in operator else {"X": array(large, dtype)}
    outputs = {"dX": array(large, dtype)} if "Grad" in operator else {"Y": array(small, dtype)}
    if axis is None and operator != "AveragePoolGrad":
        (values if "Grad" in operator else outputs)["Indices"] = array(small, "uint8" if "uint8" in words else "int64")
    spread = 2 if "dilated" in words else 1
    far = 4 if "far" in words else 2
    each = {"kernel_shape": 3, "strides": far, "dilations": spread, "pads": spread}
    attributes: dict[str, Any] = {
        key: (of_axis,) * (2 * rank if key == "pads" else rank) for key, of_axis in each.items()
    }
    attributes |= {"index_base": "tensor", "count_include_pad": 0, "divisor_override": None}
    axes = {"spatial": large[2:], "out": small[2:]}
    call = Call(operator, values, outputs, attributes, axes, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        separable_plan(call, [axis, axis]) if axis else plan(call)
    (spec,) = device.specs
    compiled = made_of(spec)
    assert compiled.spilled == 0
    assert "ld.local" not in compiled.ptx
    if order == "channels_last":
        assert "ld.global.v4.b32" in compiled.ptx
        # indices of eight bytes leave two channels to a thread
        assert ("st.global.v4.b32" in compiled.ptx) == (
            name not in ("MaxPoolGrad", "MaxPoolGrad 3-D") or dtype == "float64"
        )
