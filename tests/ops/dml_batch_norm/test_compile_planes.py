"""The planes kernel of DirectML's batch norm: where it is chosen; it compiles for every type and architecture."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import pytest
from helpers.compiled import HOPPER, OTHERS, parameters
from helpers.dml_batch_norm import OUTPUTS, call_of, planned

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Kind = tuple[tuple[int, ...], str]
KINDS: list[Kind] = [*product([(4, 576, 127, 127), (200, 77, 33, 33)], [b, h, f, d])]  # sizes, type
PLANES = "gradkern.ops.dml_batch_norm.cuda.planes_kernel"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::3], HOPPER), *zip(KINDS[1::2], cycle(OTHERS), strict=False)], product(KINDS, HOPPER + OTHERS)
    ),
)
def test_no_register_is_spilled_and_16_bytes_move_at_a_time(kind: Kind, capability: tuple[int, int]) -> None:
    _, spec = planned(call_of(*kind), capability)
    assert spec.module == PLANES
    made = spec.compile()
    assert made.spilled == 0
    assert "ld.local" not in made.ptx
    assert made.ptx.count("ld.global.v4.b32") >= 8
    assert made.ptx.count("st.global.v4.b32") >= 4


@pytest.mark.parametrize(
    ("sizes", "statistics", "kernel"),
    [
        ((4, 576, 127, 127), (), "planes_4096x4_team1"),
        ((1, 16, 300, 301), (), "planes_4096x4_team8"),
        ((200, 77, 33, 33), (), "planes_512x4_team8"),
        ((300, 1000), (300, 1), "planes_512x4_team1"),  # more channels than blocks
        ((7, 500_001), (7, 1), "planes_4096x4_team8"),
    ],
)
def test_planes_from_a_tile_on(sizes: tuple[int, ...], statistics: tuple[int, ...], kernel: str) -> None:
    found, spec = planned(call_of(sizes, f, statistics))
    assert (found, spec.module) == (kernel, PLANES)


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        ((2, 512, 22, 23), {}),  # a tile would lie in three planes
        ((4, 576, 127, 127), {"outputs": OUTPUTS[1:]}),  # dX is not written
        ((4, 576, 127, 127), {"alignment": 8}),
        ((2, 3, 20_000, 10_000), {}),  # numbers of elements need more than 31 bits
        ((2, 3, 5, 800), {"statistics": (2, 1, 5, 1)}),  # kept and reduced axes in turns
    ],
    ids=str,
)
def test_others_have_another_kernel(sizes: tuple[int, ...], changes: dict[str, Any]) -> None:
    _, spec = planned(call_of(sizes, f, **changes))
    assert spec.module != PLANES
