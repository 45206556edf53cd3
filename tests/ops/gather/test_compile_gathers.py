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
    Kind("float64", "int64", columns=513, rows=1000),
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
        assert ("griddepcontrol.wait" in compiled.ptx) == (capability >= (9, 0)), spec.name  # its launches overlap
        if "sums" in spec.name and kind.columns == 4096:
            assert compiled.ptx.count("ld.global.v4.b32") >= 8, spec.name  # rows in flight


SLICES = [("bfloat16", 64, 0, 1), ("bfloat16", 63, 1, 1), ("float32", 2, 1, 3), ("float64", 3, 63, -2)]
"""Type, and of four dimensions of 64 elements: elements, the first, the step."""


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(SLICES[1:2], HOPPER), *zip(SLICES, OTHERS, strict=True)],
        [*product(SLICES, HOPPER), *product(SLICES, OTHERS)],
    ),
)
def test_the_kernel_of_slices_spills_no_register(kind: tuple[str, int, int, int], capability: tuple[int, int]) -> None:
    dtype, count, first, step = np.dtype(kind[0]), *kind[1:]
    dY, dX = (Tensor(dtype, (each,) * 4, c_strides((each,) * 4, dtype.itemsize), 16) for each in (count, 64))
    attributes = {"starts": (first,) * 4, "ends": (first + step * count,) * 4, "axes": None, "steps": (step,) * 4}
    call = Call("SliceGrad", {"dY": dY}, {"dX": dX}, attributes, {}, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(call)
    (spec,) = device.specs
    compiled = made_of(spec)
    assert (compiled.spilled, "ld.local" in compiled.ptx) == (0, False)
    assert compiled.ptx.count("ld.global") >= 4  # in flight
