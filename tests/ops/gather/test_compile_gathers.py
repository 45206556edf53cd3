"""The kernels of gathers' gradients compile for every type and architecture without a spilled register."""

from __future__ import annotations

from itertools import cycle, product
from typing import NamedTuple

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters

from gradkern.call import Call, Tensor
from gradkern.policy import Policy
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.ops.gather.cuda.plan import plan

pytestmark = pytest.mark.thorough


class Kind(NamedTuple):
    """A gather along axis 1 with two dimensions of the batch, or of slices; vectors are whole, or single elements."""

    dtype: str
    indices: str
    elements: bool = False
    columns: int = 4096
    rows: int = 128256
    accumulate: bool = False

    @property
    def name(self) -> str:
        return f"{self.dtype}-{self.indices}-{self.columns}-{self.rows}"


KINDS = [
    Kind("bfloat16", "int64"),
    Kind("float32", "int32", accumulate=True),
    Kind("float64", "int64", columns=513),
    Kind("float16", "int32", columns=1001, rows=5),
    Kind("bfloat16", "int64", True, 1, 1 << 33),
]


def call_of(kind: Kind) -> Call:
    def tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
        return Tensor(np.dtype(dtype), shape, c_strides(shape, np.dtype(dtype).itemsize), 16)

    count, V, C, T = 16384, kind.rows, kind.columns, kind.dtype
    if kind.elements:
        shape, given = (V // 8, 8, C), (100, 6, 1)
        axes = {"before": (V // 8,), "V": 8, "after": (C,), "outer": (100,), "K": 6, "inner": (1,)}
        inputs = {"dY": tensor(given, T), "indices": tensor(given, kind.indices)}
        outputs = {"dX": tensor(shape, T)}
        return Call(
            "GatherElementsGrad", inputs, outputs, {"axis": 1}, axes, frozenset(), "cuda:0", Policy()
        )  # fmt: skip
    inputs = {"indices": tensor((count,), kind.indices), "dY": tensor((count, C), T)}
    outputs, pairs = {"dX": tensor((V, C), T)}, set[tuple[str, str]]()
    if kind.accumulate:
        inputs |= {"accumulator": outputs["dX"]}
        pairs.add(("accumulator", "dX"))
    axes = {"before": (), "V": V, "after": (C,), "gathered": (count,)}
    attributes = {"axis": 0, "padding_idx": None}
    return Call("GatherGrad", inputs, outputs, attributes, axes, frozenset(pairs), "cuda:0", Policy())


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[:1], HOPPER), *zip(KINDS[1:], cycle(OTHERS), strict=False)],
        [*product(KINDS, HOPPER), *product(KINDS, OTHERS)],
    ),
)
def test_no_register_is_spilled_and_vectors_are_whole(kind: Kind, capability: tuple[int, int]) -> None:
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(call_of(kind))
    for spec in device.specs:
        compiled = made_of(spec)
        assert compiled.spilled == 0, spec.name
        assert "ld.local" not in compiled.ptx, spec.name
        if "sums" in spec.name and kind.columns == 4096:
            assert compiled.ptx.count("ld.global.v4.b32") >= 8, spec.name  # rows in flight
