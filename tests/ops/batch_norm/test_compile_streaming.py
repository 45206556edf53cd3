"""Batch norm's two passes, in one kernel and apart, compile for every architecture: no spill, vector accesses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.kernels.channels import streaming_tiling
from gradkern.kernels.channels.streaming_config import StreamingConfig, second_pass, with_largest_ring

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Types = tuple[str, str, str]
Kind = tuple[Types, tuple[int, int, int], int]  # types; repetitions, channels, elements of each; width
KINDS: list[Kind] = [
    ((b, b, f), (64, 256, 3136), 8),
    ((f, f, f), (64, 256, 3136), 4),
    ((d, d, d), (64, 256, 3136), 2),
    ((h, f, f), (8192, 1024, 1), 8),
    ((f, f, f), (8192, 1024, 1), 4),
    ((d, d, d), (8192, 1024, 1), 2),
    ((h, h, h), (64, 2048, 49), 8),  # vectors that two planes share
    ((h, f, f), (64 * 784, 60, 1), 8),  # and two rows
    ((f, f, f), (5, 5, 7), 4),  # a vector is left over
    ((b, b, b), (64, 256, 3136), 1),
    ((b, b, b), (64, 255, 1), 1),
    ((f, f, f), (1, 3, 1 << 31), 4),  # long
    ((b, b, f), (2, 969, 3481), 8),  # fewer images than make whole vectors: narrower ones
    ((d, d, d), (1, 969, 3481), 2),
]
Passes = tuple[StreamingConfig, ...]
Made = tuple[StreamingConfig, int, int, str]  # config, registers, bytes spilled, PTX


def passes(kind: Kind, capability: tuple[int, int]) -> tuple[Passes, ...]:
    """The configs of the kernels: both passes; on one architecture also the first alone and the second alone."""
    types, (reps, inner, length), width = kind
    dims = streaming_tiling.Dimensions((), reps, inner, length)
    plain = capability < (8, 0) or width * ITEMSIZE[types[0]] < 4
    config = StreamingConfig(
        *types,
        frozenset({"scale_sum", "bias_sum"}),
        None,
        width,
        source="plain" if plain else "async",
        columns=True,
        totals=True,
        native_bfloat16=capability >= (8, 0),
    )
    gradient = replace(config, outputs=frozenset({"dX"}), totals=False, centred=True, backward=True)
    first, _ = streaming_tiling.choose_tiling(config, dims, 132, SHARED_MEMORY[capability])
    kept = with_largest_ring(first, SHARED_MEMORY[capability])
    both = kept, second_pass(kept)
    if capability != (9, 0):
        return (both,)
    apart, _ = streaming_tiling.choose_tiling(gradient, dims, 132, SHARED_MEMORY[capability])
    return both, (first,), (apart,)


def compiled(kind: Kind, capability: tuple[int, int]) -> list[Made]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.kernels.channels.streaming_kernel import build

    made = []
    for configs in passes(kind, capability):
        config = configs[0]
        result = compile_kernel(
            build(*configs), len(streaming_tiling.ARGUMENTS), capability, config.threads, config.blocks_per_processor
        )
        made.append((config, result.registers, result.spilled, result.ptx))
    return made


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [(KINDS[0], HOPPER[0])],  # each takes ten seconds
        [*product(KINDS, HOPPER), *product(KINDS[::3], OTHERS)],
    ),
)
def test_no_register_is_spilled_and_accesses_are_vectors(kind: Kind, capability: tuple[int, int]) -> None:
    for number, (config, _, spilled, ptx) in enumerate(compiled(kind, capability)):
        assert spilled == 0
        assert "ld.local" not in ptx
        walks, writes = (2, True) if number == 0 else (1, number == 2)
        if config.width * config.data_itemsize >= 16:
            reads = 2 * walks * config.vectors  # of X and D; other reads come on top
            assert ptx.count("cp.async.cg.shared.global") >= reads * config.ring
            assert ptx.count(f"ld.{'shared' if config.ring else 'global'}.v4.b32") >= reads
            assert ("st.global.v4.b32" in ptx) == writes
