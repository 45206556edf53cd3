"""The persistent kernel of channels-last arrays compiles for every architecture with clusters: no spill, vectors."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import pytest
from helpers.compiled import HOPPER, SHARED_MEMORY, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.kernels.channels.channels_last_config import ARGUMENTS, ChannelsLastConfig

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
ALL = frozenset({"dX", "scale_sum", "bias_sum"})
# types, channels of a vector, activation
Kind = tuple[tuple[str, str, str], int, str]
KINDS: list[Kind] = [
    *(((b, f, f), 8, "relu"), ((h, f, f), 8, "none"), ((f, f, f), 4, "none"), ((b, b, f), 8, "none")),
    *(((h, h, h), 8, "none"), ((b, b, b), 4, "leaky_relu 0.01"), ((f, f, f), 1, "relu"), ((d, d, d), 1, "none")),
    *(((d, d, d), 2, "silu"), ((b, f, f), 8, "none"), ((h, h, f), 8, "silu"), ((d, d, d), 2, "none")),
    *(((h, h, f), 2, "none"), ((b, b, b), 1, "none"), ((h, f, f), 1, "none"), ((b, f, f), 1, "silu")),
    *(((b, f, f), 8, "gelu"), ((f, f, f), 4, "gelu"), ((d, d, d), 2, "gelu")),
]


@lru_cache
def compiled(kind: Kind, capability: tuple[int, int]) -> tuple[int, str]:
    """Bytes spilled, PTX."""
    from gradkern.cuda.compile import compile_kernel
    from gradkern.kernels.channels.channels_last_kernel import build

    types, width, activation = kind
    config = ChannelsLastConfig(*types, ALL, SHARED_MEMORY[capability], width, activation).with_threads()
    made = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads)
    return made.spilled, made.ptx


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [(KINDS[0], HOPPER[0]), (KINDS[1], (12, 0))],
        [*product(KINDS, HOPPER), *product(KINDS[::2], [(10, 0), (12, 0)])],
    ),
)
def test_no_register_is_spilled_and_accesses_are_vectors(kind: Kind, capability: tuple[int, int]) -> None:
    spilled, ptx = compiled(kind, capability)
    types, width, *_ = kind
    assert spilled == 0
    size = width * ITEMSIZE[types[0]]
    assert (f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global" in ptx) == (size >= 4)
    assert "st.async" in ptx
    if size == 16:
        assert "ld.shared.v4.b32" in ptx
        assert "st.global.v4.b32" in ptx
