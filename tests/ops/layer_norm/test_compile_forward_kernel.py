"""Every kind of the layer norms' kernel compiles for every architecture: no spill, and the vector accesses it means."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import cycle, product

import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, parameters
from helpers.norm_forward import LAYER, OUTPUTS, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.ops.layer_norm import NAMES
from gradkern.ops.layer_norm.cuda.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.tiling import choose
from gradkern.ops.layer_norm.cuda.row_config import ARGUMENTS

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
Kind = tuple[str, str, str, int, int]
KINDS: list[Kind] = [  # operator, X and Y, scale, columns, width
    (LAYER, b, b, 4096, 8),
    (SIMPLIFIED, f, f, 1024, 4),
    (LAYER, h, f, 128, 8),
    (LAYER, d, d, 1024, 2),
    (LAYER, b, b, 1001, 1),
    (SIMPLIFIED, b, b, 5120, 8),
    (LAYER, f, f, 65536, 4),
    (LAYER, b, b, 300_000, 8),
    (LAYER, b, f, 768, 8),
    (SKIP, b, b, 1024, 8),
    (SKIP_SIMPLIFIED, h, h, 4096, 8),
    (SKIP, f, f, 16384, 4),
    (SKIP, d, d, 4096, 2),
    (SKIP_SIMPLIFIED, b, b, 1024, 8),
    (LAYER, f, f, 4096, 4),
    (LAYER, b, b, 768, 8),
    (SKIP_SIMPLIFIED, f, b, 4096, 4),
    (SKIP, d, d, 300_000, 2),
    (SIMPLIFIED, h, h, 9216, 8),
    (SKIP_SIMPLIFIED, b, b, 12288, 8),
    (SIMPLIFIED, h, h, 24576, 8),
    (LAYER, h, h, 1280, 8),
    (SIMPLIFIED, f, f, 6144, 4),
    # narrow rows of float64, in blocks that end with them
    (SIMPLIFIED, d, d, 192, 2),
    (SKIP, d, d, 84, 2),
    (SKIP_SIMPLIFIED, d, d, 637, 1),
]
ALIGNED_VECTORS: list[Kind] = [  # of memory, which only devices do that copy rows in bulk
    (LAYER, h, h, 11557, 8),
    (SIMPLIFIED, b, b, 18333, 8),
    (LAYER, b, b, 5003, 8),
    (SKIP, b, b, 3001, 8),
    (SKIP_SIMPLIFIED, f, f, 63521, 4),
    (SKIP_SIMPLIFIED, b, b, 621, 8),
    (SKIP, b, b, 879, 8),
    (SKIP, h, h, 5809, 8),  # one group, with parameters in registers
    (LAYER, h, h, 741, 8),
]


def config_of(kind: Kind, capability: tuple[int, int], rows: int = 1 << 20, shifted: bool = True) -> NormForwardConfig:
    operator, data, parameter, columns, width = kind
    config = NormForwardConfig(
        operator,
        data,
        data,
        data,
        parameter,
        d if data == d else f,
        frozenset(NAMES[each] for each in OUTPUTS[operator]),
        width,
        lanes=1,
        vectors=1,
        groups_per_block=1,
        biased=operator in (LAYER, SKIP),
        shifted=shifted and operator == SKIP,
        source={(7, 5): "plain", (8, 0): "plain" if width == 1 else "async"}.get(capability, "bulk"),
        aligned=width > 1,
        aligned_vectors=columns % width > 0,
        native_bfloat16=capability >= (8, 0),
    )
    return choose(config, columns, rows, 132, SHARED_MEMORY[capability])


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product([*KINDS[::3], *ALIGNED_VECTORS[::3]], HOPPER), *zip(KINDS[1::3], cycle(OTHERS), strict=False)],
        [*product([*KINDS, *ALIGNED_VECTORS], HOPPER), *product(KINDS[::2], OTHERS)],
    ),
)
def test_no_register_is_spilled_and_accesses_are_vectors(kind: Kind, capability: tuple[int, int]) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.layer_norm.cuda.kernel import build

    config = config_of(kind, capability)
    made = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    assert made.spilled == 0
    if config.width * config.data_itemsize >= 16:
        assert f"ld.{'shared' if config.ring else 'global'}.v4.b32" in made.ptx
        assert "st.global.v4.b32" in made.ptx
    assert ("cp.async.bulk" in made.ptx) == (config.source == "bulk")
    assert "ld.local" not in made.ptx


@pytest.mark.parametrize(("columns", "shifted"), [(40001, False), (30001, True)])
def test_no_register_is_spilled_where_threads_have_many_single_elements(columns: int, shifted: bool) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.layer_norm.cuda.kernel import build

    config = config_of((SKIP, h, h, columns, 1), (9, 0), 9000, shifted)
    made = compile_kernel(build(config), len(ARGUMENTS), (9, 0), config.threads, config.blocks_per_processor)
    assert made.spilled == 0


FEW: list[Kind] = [  # a block, or a warp, for each of few rows
    (LAYER, b, b, 1024, 8),
    (LAYER, h, f, 777, 1),
    (LAYER, f, f, 1024, 4),
    (SIMPLIFIED, b, b, 12288, 8),
    (LAYER, d, d, 2000, 2),
    (LAYER, b, b, 3565, 1),
    (SIMPLIFIED, f, f, 7408, 4),
    (SKIP_SIMPLIFIED, b, b, 4096, 8),
    (LAYER, f, f, 12288, 4),
    (LAYER, h, h, 5001, 1),
    (SKIP_SIMPLIFIED, f, f, 1024, 4),
    (SKIP_SIMPLIFIED, h, f, 8190, 2),
    (SIMPLIFIED, d, d, 512, 2),
    (LAYER, b, f, 16384, 8),
]
WIDE: list[Kind] = [  # the same of the widest, on devices with much shared memory
    (LAYER, f, f, 16384, 4),
    (SIMPLIFIED, f, f, 16384, 4),
    (SIMPLIFIED, h, h, 24576, 8),
    (LAYER, b, b, 24576, 8),
    (SIMPLIFIED, d, d, 16384, 2),
    (LAYER, d, d, 10240, 2),
]


@pytest.mark.parametrize("rows", [100, 250])
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([*product(FEW[::2], HOPPER)], [*product(FEW, HOPPER), *product(FEW[::3], OTHERS[2:])]),
)
def test_no_register_is_spilled_where_there_are_few_rows(kind: Kind, capability: tuple[int, int], rows: int) -> None:
    check_few(kind, capability, rows)


@pytest.mark.parametrize(("kind", "capability"), parameters([(WIDE[0], HOPPER[0])], product(WIDE, HOPPER)))
def test_no_register_is_spilled_where_wide_rows_are_fewer_still(kind: Kind, capability: tuple[int, int]) -> None:
    check_few(kind, capability, 100)


SHARED_OUT: list[Kind] = [  # a cluster for each row
    (LAYER, b, f, 50240, 8),
    (SKIP_SIMPLIFIED, f, f, 16384, 4),
    (SIMPLIFIED, d, d, 33216, 2),
    (SKIP_SIMPLIFIED, h, h, 32119, 1),
    (LAYER, d, d, 10720, 2),
]


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([(SHARED_OUT[0], HOPPER[0])], [*product(SHARED_OUT, HOPPER), *product(SHARED_OUT[::2], OTHERS[2:])]),
)
def test_no_register_is_spilled_where_blocks_share_a_row(kind: Kind, capability: tuple[int, int], rows: int) -> None:
    assert check_few(kind, capability, rows).cluster


def check_few(kind: Kind, capability: tuple[int, int], rows: int) -> NormForwardConfig:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.layer_norm.cuda.kernel import build

    config = config_of(kind, capability, rows)
    assert config.non_persistent or (
        capability[0] == 12 and config.blocks_per_row > 1
    )  # whose multiprocessors have less shared memory
    made = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    assert made.spilled == 0
    assert "ld.local" not in made.ptx
    return config


@pytest.mark.parametrize("data", [b, pytest.param(h, marks=pytest.mark.every_kernel)])
def test_no_register_is_spilled_where_fewer_rows_have_a_ring(data: str) -> None:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.layer_norm.cuda.kernel import build

    config = config_of((LAYER, data, f, 1024, 8), HOPPER[0], 8192)
    assert not config.non_persistent
    made = compile_kernel(build(config), len(ARGUMENTS), HOPPER[0], config.threads, config.blocks_per_processor)
    assert made.spilled == 0
    assert "ld.local" not in made.ptx


@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_few_groups_name_their_barriers(groups: int) -> None:
    """Of a number that the compiler does not know a block takes all 16, and more than four such blocks gain nothing."""
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.layer_norm.cuda.kernel import build

    config = replace(config_of((SIMPLIFIED, f, f, 1024, 4), HOPPER[0]), lanes=64, vectors=4, groups_per_block=groups)
    made = compile_kernel(build(config), len(ARGUMENTS), HOPPER[0], config.threads, 1)
    assert set(re.findall(r"bar\.sync\s+([^,;\s]+)", made.ptx)) - {"0"} == {str(1 + group) for group in range(groups)}
