"""The tiles kernel of DirectML's batch norm compiles for every type and architecture: no spill, and vectors."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import pytest
from helpers.compiled import HOPPER, OTHERS, parameters
from helpers.dml_batch_norm import call_of, planned

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Kind = tuple[tuple[int, int], str]
KINDS: list[Kind] = [  # rows and channels, type
    *product([(70_000, 768), (1_000_000, 33), (300_000, 244), (64, 1024)], [b, h, f, d]),
    *((each, h) for each in ((3_000_000, 5), (400_000, 58), (100, 1001), (20_000, 2759))),
]


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
    assert kernel.module == "gradkern.kernels.channels.streaming_kernel"
