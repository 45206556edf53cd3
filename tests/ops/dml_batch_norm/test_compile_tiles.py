"""The tiles kernel of DirectML's batch norm compiles for every type and architecture: no spill, and vectors."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, parameters
from helpers.dml_batch_norm import DML

from gradkern.call import Call, Tensor
from gradkern.cuda.spec import KernelSpec
from gradkern.policy import Policy
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.ops.dml_batch_norm.cuda.plan import plan

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Kind = tuple[tuple[int, int], str]
KINDS: list[Kind] = [  # rows and channels, type
    *product([(70_000, 768), (1_000_000, 33), (300_000, 244), (64, 1024)], [b, h, f, d]),
    *((each, h) for each in ((3_000_000, 5), (400_000, 58), (100, 1001), (20_000, 2759))),
]


def call_of(sizes: tuple[int, ...], dtype: str, outputs: tuple[str, ...] = (), alignment: int = 256) -> Call:
    def tensor(shape: tuple[int, ...]) -> Tensor:
        kind = np.dtype(dtype)
        return Tensor(kind, shape, c_strides(shape, kind.itemsize), alignment)

    data, each = tensor(sizes), tensor((1, *sizes[1:]))
    inputs = {"Input": data, "InputGradient": data, "Mean": each, "Variance": each, "Scale": each}
    wanted = {"OutputGradient": data, "OutputScaleGradient": each, "OutputBiasGradient": each}
    wanted = {name: wanted[name] for name in outputs or wanted}
    return Call(DML, inputs, wanted, {"Epsilon": 1e-5}, {}, frozenset(), "cuda:0", Policy())


def planned(call: Call, capability: tuple[int, int] = (9, 0)) -> tuple[str, KernelSpec]:
    """The plan's name, and its kernel."""
    with dry_run(DryRunDevice(0, capability, 132, 232448)) as device:
        kernel: Any = plan(call).kernel
    (spec,) = device.specs
    return kernel, spec


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[1::7], HOPPER), *zip(KINDS[::9], cycle(OTHERS), strict=False)],
        [*product(KINDS, HOPPER), *product(KINDS[::3], OTHERS)],
    ),
)
def test_no_register_is_spilled_and_16_bytes_move_at_a_time(kind: Kind, capability: tuple[int, int]) -> None:
    name, spec = planned(call_of(*kind), capability)
    made = spec.compile()
    assert made.spilled == 0
    assert "ld.local" not in made.ptx
    if kind[0] != (100, 1001):  # whose rows are single elements
        assert made.ptx.count("ld.global.v4.b32") >= 4
        assert made.ptx.count("st.global.v4.b32") >= 2
    assert name.startswith("columns_tiles" if kind[0][0] > 128 else "columns_single_block")


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        ((70_000, 768), {"outputs": ("OutputGradient", "OutputBiasGradient")}),  # X is not read
        ((70_000, 768), {"outputs": ("OutputScaleGradient", "OutputBiasGradient")}),  # dX is not written
        ((70_000, 768), {"alignment": 4}),
        ((1, 768), {}),
    ],
    ids=str,
)
def test_what_the_tiles_cannot_do_better_is_streamed(sizes: tuple[int, int], changes: dict[str, Any]) -> None:
    _, kernel = planned(call_of(sizes, h, **changes))
    assert kernel.module == "gradkern.channel_kernels.streaming_kernel"
