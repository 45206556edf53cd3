"""Every kind of norm kernel compiles for every architecture: no spill, and the vector accesses it means."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any

import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, parameters
from helpers.dml_batch_norm import DML
from helpers.layer_norm import ALL_OUTPUTS, INVERTIBLE, LAYER, SIMPLIFIED

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.kernels.channels import streaming_tiling
from gradkern.kernels.channels.streaming_config import StreamingConfig
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_config import ARGUMENTS
from gradkern.ops.layer_norm.cuda.tiling import choose

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SOURCE = {(7, 5): "plain", (8, 0): "async", (9, 0): "bulk", (10, 0): "bulk", (12, 0): "bulk"}
KINDS = [  # operator, X, Y_grad, scale, columns, width
    (LAYER, b, b, b, 4096, 8),
    (SIMPLIFIED, b, b, b, 4096, 8),
    (INVERTIBLE, b, b, b, 4096, 8),
    (LAYER, h, h, f, 128, 8),
    (INVERTIBLE, h, h, h, 768, 8),
    (SIMPLIFIED, f, h, h, 1024, 4),
    (LAYER, f, f, f, 65536, 4),
    (LAYER, d, d, d, 1024, 2),
    (LAYER, b, b, b, 1001, 1),
    (INVERTIBLE, b, b, b, 5000, 8),
    (LAYER, d, d, d, 512, 2),
    (INVERTIBLE, d, d, d, 4096, 2),
    (INVERTIBLE, b, b, b, 262144, 8),
    (LAYER, b, b, b, 262144, 8),
    (LAYER, h, h, f, 262144, 8),
    (INVERTIBLE, b, b, b, 4097, 1),
    # operator, type, axes around a slab, repetitions, channels, elements of each, width
    (DML, b, (), 64, 256, 3136, 8),
    (DML, h, (), 8192, 1024, 1, 8),
    (DML, b, (), 64, 2048, 49, 8),
    (DML, f, (), 64, 256, 3136, 4),
    (DML, d, (), 64, 256, 3136, 2),
    (DML, d, (), 8192, 1024, 1, 2),
    (DML, f, (6, 4), 5, 16, 64, 4),
    (DML, b, (), 1, 8192, 1, 8),  # none reduced
    (DML, f, (), 1, 3, 1 << 31, 4),
    (DML, f, (), 3, 5, 7, 4),  # a vector is left over
    (DML, b, (), 64, 256, 3136, 1),
    # groups of warps that are no power of two, and few registers to spare
    (LAYER, b, b, b, 5120, 8),
    (INVERTIBLE, b, b, b, 10240, 8),
    (INVERTIBLE, b, b, b, 14336, 8),
    (SIMPLIFIED, b, b, b, 2304, 8),
    (SIMPLIFIED, b, b, b, 7680, 8),
    (LAYER, h, h, h, 9216, 8),
    (LAYER, b, b, b, 2304, 8),
    (SIMPLIFIED, b, b, b, 320, 8),
    # a residual's gradient is added
    (LAYER, b, b, b, 768, 8, "residual"),
    (LAYER, f, f, f, 65536, 4, "residual"),
    (SIMPLIFIED, b, b, f, 4096, 8, "residual"),
    # X_grad is summed over rows
    (LAYER, b, b, b, 1024, 8, "residual", "X_grad_sum"),
    (LAYER, d, d, d, 256, 2, "residual", "X_grad_sum"),
    (SIMPLIFIED, f, f, f, 262144, 4, "residual", "X_grad_sum"),
]
BULK = [  # the same, of devices that copy rows in bulk: by units of memory
    (LAYER, b, b, b, 4097, 8, "units"),
    (INVERTIBLE, b, b, b, 1003, 8, "units"),
    (LAYER, f, f, f, 5003, 4, "units"),
    (LAYER, h, h, f, 9913, 8, "units"),
    (SIMPLIFIED, b, b, b, 301, 8, "units"),
    (LAYER, b, b, b, 9001, 8, "units", "residual"),
    (LAYER, b, b, b, 1001, 8, "units", "residual", "X_grad_sum"),
    (LAYER, b, b, b, 7680, 8, "X_grad_sum"),
    # in as few slices as hold them, registers were spilled
    (LAYER, b, b, b, 10496, 8),
    (INVERTIBLE, b, b, b, 41536, 8),
    (LAYER, d, d, d, 37620, 2),
    # single elements, several rows to a warp
    (INVERTIBLE, h, h, h, 209, 1),
    (INVERTIBLE, f, f, f, 229, 1),
    # one group with 32 values a thread
    (LAYER, b, b, b, 65536, 8),
    (LAYER, b, b, b, 65536, 8, "residual"),
    (INVERTIBLE, h, h, f, 46285, 8, "units"),
    (LAYER, h, h, h, 27209, 8, "units"),
]
Made = tuple[Any, int, str]  # config, bytes spilled, PTX


def compiled(kind: tuple[Any, ...], capability: tuple[int, int]) -> Made:
    return (batch_norm if kind[0] == DML else layer_norm)(kind, capability)


def batch_norm(kind: tuple[Any, ...], capability: tuple[int, int]) -> Made:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.kernels.channels.streaming_kernel import build

    _, dtype, nest, reps, inner, length, width = kind
    dims = streaming_tiling.Dimensions(nest, reps, inner, length)
    config = StreamingConfig(
        dtype,
        dtype,
        dtype,
        frozenset({"dX", "scale_sum", "bias_sum"}),
        1e-5,
        width,
        source="plain" if width == 1 or capability < (8, 0) else "async",
        columns=True,
        native_bfloat16=capability >= (8, 0),
    )
    config, _ = streaming_tiling.choose_tiling(config, dims, 132, SHARED_MEMORY[capability])
    arguments = len(streaming_tiling.ARGUMENTS)
    result = compile_kernel(build(config), arguments, capability, config.threads, config.blocks_per_processor)
    return config, result.spilled, result.ptx


def layer_norm(kind: tuple[Any, ...], capability: tuple[int, int]) -> Made:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.layer_norm.cuda.kernel import build

    config = norm_config(kind, capability)
    result = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    return config, result.spilled, result.ptx


def norm_config(kind: tuple[Any, ...], capability: tuple[int, int]) -> LayerNormConfig:
    operator, data, upstream, parameter, columns, width, *more = kind
    config = LayerNormConfig(
        operator,
        data,
        upstream,
        data,
        parameter,
        d if data == d else f,
        frozenset(ALL_OUTPUTS[operator]) | ({"X_grad_sum"} & {*more}),
        width,
        lanes=1,
        vectors=1,
        groups_per_block=1,
        source="plain" if width == 1 and capability < (9, 0) else SOURCE[capability],
        aligned=width > 1,
        native_bfloat16=capability >= (8, 0),
        residual="residual" in more,
        aligned_vectors="units" in more,
    )
    return choose(config, columns, 1 << 20, 132, SHARED_MEMORY[capability])


@pytest.mark.parametrize(
    ("kind", "capability", "phase"),
    [
        ((LAYER, b, b, b, 262144, 8), (9, 0), "fused"),
        ((LAYER, h, h, f, 262144, 8), (9, 0), "fused"),
        ((INVERTIBLE, b, b, b, 262144, 8), (9, 0), "fused"),
        ((INVERTIBLE, h, h, f, 262144, 8), (9, 0), "apply"),  # the parameters' 256 KB leave no room for rows
        ((LAYER, b, b, b, 262152, 8), (9, 0), "apply"),
        ((LAYER, f, f, f, 262144, 4), (9, 0), "apply"),
        ((LAYER, b, b, b, 262144, 8), (12, 0), "apply"),
    ],
)
def test_wide_rows_are_read_once_where_they_fit_a_cluster(
    kind: tuple[Any, ...], capability: tuple[int, int], phase: str
) -> None:
    config = norm_config(kind, capability)
    assert (config.phase, config.row_in_registers) == (phase, phase == "apply")


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [*product(KINDS[::4] + BULK[:2], HOPPER), *zip(KINDS[1::8], cycle(OTHERS), strict=False)],
        [
            *product(KINDS + BULK, HOPPER),
            *product(KINDS[::3], OTHERS),
            *product(BULK[::3], OTHERS[2:]),
        ],
    ),
)
def test_no_register_is_spilled_and_accesses_are_vectors(kind: tuple[Any, ...], capability: tuple[int, int]) -> None:
    config, spilled, ptx = compiled(kind, capability)
    assert spilled == 0
    # before the final sums, but for configs whose loop may be laid out behind the store of the last vector's elements
    whole = getattr(config, "direct", False) or getattr(config, "tail", False)
    loop = ptx if whole else ptx[: ptx.rindex("st.global")]
    if config.width * config.data_itemsize >= 16:
        assert f"ld.{'shared' if config.ring else 'global'}.v4.b32" in loop
        assert "st.global.v4.b32" in loop
    assert ("cp.async.bulk" in ptx) == (config.source == "bulk")
    assert "ld.local" not in ptx
