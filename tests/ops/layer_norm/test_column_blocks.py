"""Where blocks of their own make the layer norms' sums over rows, and that their kernels compile everywhere."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of, parameters
from helpers.layer_norm import ALL_OUTPUTS, INPUTS, INVERTIBLE, LAYER, SIMPLIFIED, WITH_SUM

from gradkern.call import Call, Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.spec import KernelSpec
from gradkern.ops.layer_norm.cuda.column_blocks_tiling import with_column_blocks
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.plan import plan
from gradkern.policy import Policy
from gradkern.strides import c_strides

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Kind = tuple[str, int, int, str]  # operator, rows, columns, type
KINDS: list[Kind] = [
    *product([LAYER], [128], [768], [b, h, f, d]),
    *product([SIMPLIFIED], [32], [8192], [b, f]),
    *product([INVERTIBLE], [40], [4672], [b, f]),
    *product([LAYER, INVERTIBLE], [20], [5003], [h, f]),  # single elements
    *product([LAYER, INVERTIBLE], [7], [178], [b, d]),  # vectors of four bytes
    *product([LAYER], [500], [24], [b]),
]
IN_CLUSTERS: list[Kind] = [
    *product([LAYER, INVERTIBLE], [4000], [256], [b, f]),  # that share a stripe
    *product([SIMPLIFIED], [4000], [64], [h, d]),
    *product([SIMPLIFIED, INVERTIBLE], [8], [30000], [b, f]),  # that have the slices of a row
    *product([LAYER, SIMPLIFIED], [4], [57808], [b, f]),  # and several warps have a stripe
    *product([INVERTIBLE], [64], [4672], [d]),
]


def planned(
    kind: Kind, outputs: tuple[str, ...] = (), in_place: str = "", capability: tuple[int, int] = (9, 0)
) -> tuple[LaunchesPlan, list[KernelSpec]]:
    """The plan of a call on a device that is not there, and its kernels."""
    operator, rows, columns, dtype = kind

    def tensor(shape: tuple[int, ...], name: str) -> Tensor:
        return Tensor(np.dtype(name), shape, c_strides(shape, np.dtype(name).itemsize), 16)

    def given(name: str) -> Tensor:
        if name in ("mean", "inv_std_dev", "inv_std_var"):
            return tensor((rows,), d if dtype == d else f)
        return tensor((columns,) if name in ("scale", "bias") else (rows, columns), dtype)

    wanted = outputs or ALL_OUTPUTS[operator]
    call = Call(
        operator=operator,
        inputs={name: given(name) for name in INPUTS[operator]},
        outputs={name: tensor((rows, columns) if name == "X_grad" else (columns,), dtype) for name in wanted},
        attributes={"axis": -1},
        axes={"rows": (rows,), "columns": (columns,)},
        in_place=frozenset({(in_place, "X_grad")} if in_place else ()),
        device="cuda:0",
        policy=Policy(),
    )
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        made: Any = plan(call)
    return made, list(device.specs)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::5] + IN_CLUSTERS[::3], HOPPER), *zip(KINDS[1::4], cycle(OTHERS), strict=False)],
        [*product([*KINDS, *IN_CLUSTERS], HOPPER), *product(KINDS[::4], OTHERS)],
    ),
)
def test_no_register_is_spilled_and_accesses_are_vectors(kind: Kind, capability: tuple[int, int]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    made, (spec,) = planned(kind, capability=capability)
    assert made.kernel.endswith("_column_blocks")
    compiled = made_of(spec)
    assert compiled.spilled == 0
    assert "ld.local" not in compiled.ptx
    if kind[2] * np.dtype(kind[3]).itemsize % 16 == 0:
        assert compiled.ptx.count("ld.global.v4.b32") >= 4
        assert "st.global.v4.b32" in compiled.ptx


@pytest.mark.parametrize("kind", KINDS + IN_CLUSTERS, ids=str)
def test_the_sums_of_small_arrays_need_no_memory(kind: Kind) -> None:
    made, _ = planned(kind)
    assert made.kernel.endswith("_column_blocks")
    assert made.scratch == 0


@pytest.mark.parametrize(
    "kind",  # an H200 took 6.7, 6.5, 8.2 us; with 139, 158, 135 blocks, where it has room for 132, 8.6, 8.2, 9.4
    [(INVERTIBLE, 51, 5600, f), (INVERTIBLE, 417, 848, f), (INVERTIBLE, 568, 512, d)],
    ids=str,
)
def test_there_are_not_a_few_blocks_more_than_a_device_has_room_for(kind: Kind) -> None:
    made, (spec,) = planned(kind)
    assert made.kernel.endswith("_column_blocks")
    assert made.launches[0].grid <= 132 * spec.constants[0].blocks_per_processor


def test_X_grad_alone_needs_no_memory_and_the_sums_of_large_arrays_do() -> None:
    size = (LAYER, 16384, 4096, b)
    assert planned(size, outputs=("X_grad",))[0].scratch == 0
    assert planned(size)[0].scratch > 0


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ((LAYER, 16384, 4096, b), {}),  # reading twice takes longer
        ((LAYER, 200, 40000, b), {}),
        ((SIMPLIFIED, 100_000, 105, h), {}),
        ((LAYER, 128, 768, b), {"in_place": "X"}),  # a block may have overwritten what another still has to read
        ((LAYER, 128, 768, b), {"in_place": "Y_grad"}),
        ((LAYER, 128, 768, b), {"outputs": WITH_SUM[LAYER]}),  # of sums that need the row's
        ((LAYER, 128, 768, b), {"outputs": ("X_grad",)}),
        ((LAYER, 128, 768, b), {"outputs": ("scale_grad", "bias_grad")}),
    ],
    ids=str,
)
def test_others_have_sums_and_rows_in_the_same_blocks(kind: Kind, how: dict[str, Any]) -> None:
    assert not planned(kind, **how)[0].kernel.endswith("_column_blocks")


@pytest.mark.parametrize(
    ("kind", "blocks"),  # with rows, and with columns
    [
        ((LAYER, 128, 768, b), (64, 24)),
        ((SIMPLIFIED, 32, 8192, b), (32, 32)),
        ((LAYER, 16, 4096, b), (16, 16)),
    ],
)
def test_the_grid_has_blocks_for_all_rows_and_all_columns(kind: Kind, blocks: tuple[int, int]) -> None:
    (launch,) = planned(kind)[0].launches
    assert launch.grid == sum(blocks)


def test_few_kernels_serve_all_widths() -> None:
    config = LayerNormConfig(LAYER, b, b, b, b, f, frozenset(ALL_OUTPUTS[LAYER]), 8, 1, 1, 1, scale_width=8)
    for rows in (16, 128, 1024):
        configs = {with_column_blocks(config, columns, rows, 132) for columns in range(64, 8193, 40)}
        assert len(configs) <= 42
