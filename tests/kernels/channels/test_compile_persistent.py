"""The persistent kernel compiles for every architecture with clusters: no spill, vector accesses."""

from __future__ import annotations

import re
from itertools import product

import pytest
from helpers.compiled import HOPPER, SHARED_MEMORY, parameters

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.kernels.channels.persistent_config import (
    ARGUMENTS,
    PersistentConfig,
    resident_partitions,
    single_pass_partition,
)
from gradkern.kernels.channels.times import SinglePassTimes, times

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
ALL = frozenset({"dX", "scale_sum", "bias_sum"})
Kind = tuple[tuple[str, str, str], tuple[int, int, int]]
KINDS: list[Kind] = [  # types; images, channels, elements of a plane
    ((b, b, f), (64, 256, 3136)),
    ((h, f, f), (32, 512, 784)),
    ((h, h, h), (64, 512, 196)),  # four elements a vector
    ((b, b, b), (64, 2048, 49)),  # single elements
    ((f, f, f), (32, 256, 3136)),
    ((d, d, d), (32, 512, 784)),
    ((b, b, b), (128, 64, 90)),  # small enough for a single pass of several slices
    ((b, b, f), (8, 969, 3481)),  # planes begin anywhere
    ((h, h, h), (4, 3697, 1225)),
    ((f, f, f), (1, 1001, 3969)),
    ((d, d, d), (8, 203, 625)),
    ((b, b, f), (33, 203, 49)),
    ((f, f, f), (256, 128, 100)),
]
Made = tuple[PersistentConfig, int, str]  # config, bytes spilled, PTX


def compiled(kind: Kind, capability: tuple[int, int]) -> list[Made]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.kernels.channels.persistent_kernel import build

    types, sizes = kind
    most = 16 if capability[0] < 12 else 8
    configs = [
        config
        for config, _ in resident_partitions(
            PersistentConfig(*types, ALL, None, True, SHARED_MEMORY[capability]), sizes, most, 132
        )
    ]
    found = single_pass_partition(
        PersistentConfig(*types, ALL, 1e-5, False, SHARED_MEMORY[capability]), sizes, most, 132, times(SinglePassTimes)
    )
    configs += [found[0]] if found else []
    made = []
    for config in configs:
        result = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads)
        made.append((config, result.spilled, result.ptx))
    return made


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [(KINDS[0], HOPPER[0]), (KINDS[2], (12, 0))],
        [*product(KINDS, HOPPER), *product(KINDS[::2], [(10, 0), (12, 0)])],
    ),
)
def test_no_register_is_spilled_and_accesses_are_vectors(kind: Kind, capability: tuple[int, int]) -> None:
    made = compiled(kind, capability)
    assert made or capability[0] >= 12, "there is a config where memory suffices"
    for config, spilled, ptx in made:
        assert spilled == 0
        assert ptx.count("cp.async.bulk.shared::cluster.global") == config.parts
        assert ("st.async" in ptx) == (config.cluster_size > 1)
        if config.width * ITEMSIZE[config.data] == 16:
            assert ptx.count("ld.shared.v4.b32") >= (4 if config.centred else 2)
            assert ptx.count("st.global.v4.b32") == 1
            if config.edges:
                assert re.search(r"st\.global\.(b16|f32|b32) ", ptx), "single elements are written, too"
