"""The GELU kernel compiles for every type, every kind of task and every architecture, as it is meant to be."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from helpers.bias_gelu import EXACT, FAST, FORWARD
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, parameters

from gradkern.call import Call, Tensor
from gradkern.policy import Policy
from gradkern.strides import c_strides

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.kernels.channels.tiles_config import ARGUMENTS
from gradkern.ops.bias_gelu.cuda.config import BiasGeluConfig, choose
from gradkern.ops.bias_gelu.cuda.plan import plan

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
TYPES = [(b, b), (b, f), (h, h), (h, f), (f, f), (d, d)]
STREAM, SUMS = ("dX",), ("dX", "dB")
Kind = tuple[str, tuple[str, str], int, int, int, tuple[str, ...]]
KINDS: list[Kind] = [  # operator, types, rows, columns, fold, outputs
    *product((EXACT, FAST), TYPES, [1 << 15], [4096], [1], [STREAM, SUMS]),
    *product((EXACT, FAST), [(b, b), (f, f), (d, d)], [1 << 15], [1001], [0], [STREAM, SUMS]),
    *product((EXACT, FAST), [(b, b), (f, f)], [1 << 15], [8], [1], [STREAM, SUMS]),
    *product((EXACT, FAST), [(b, b), (d, d)], [200], [80001], [0], [SUMS]),
    *product((EXACT, FAST), [(b, b), (d, d)], [128], [3072], [1], [("dB",), SUMS]),
]
THEMSELVES: list[Kind] = [
    *product(FORWARD, [(b, b), (f, f), (d, d)], [1 << 15], [4096], [1], [STREAM]),
    (FORWARD[0], (b, b), 1 << 15, 1001, 0, STREAM),
]
ELSEWHERE: list[Kind] = [*product((EXACT, FAST), [(b, f), (d, d)], [1 << 15], [3072], [1], [STREAM, SUMS])]
"""On other devices than 9.0."""


def is_chosen(kind: Kind) -> bool:
    """The sums are the exact form's, which needs the more registers; the fast form has the other outputs."""
    return (kind[0] == EXACT) == (kind[-1] == SUMS)


def compiled(kind: Kind, capability: tuple[int, int]) -> tuple[BiasGeluConfig, int, str]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.bias_gelu.cuda.kernel import build

    operator, (data, parameter), rows, columns, fold, outputs = kind
    width = 16 // ITEMSIZE[data]
    fold = fold or width
    biases = width if fold == 1 else 1
    config = BiasGeluConfig(operator, data, parameter, outputs, width, folded=fold > 1, fold=fold)
    config = replace(config, parameters_at_once=biases)
    config = choose(replace(config, native_bfloat16=capability >= (8, 0)), columns * fold, rows // fold, 132)
    made = compile_kernel(build(config), len(ARGUMENTS), capability, config.threads, config.blocks_per_processor)
    return config, made.spilled, made.ptx


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters(
        [
            *product([*filter(is_chosen, KINDS)][::3], HOPPER),
            *product(THEMSELVES[::3], HOPPER),
            *zip(ELSEWHERE[1::2], cycle(OTHERS), strict=False),
        ],
        [*product([*KINDS, *THEMSELVES], HOPPER), *product([*ELSEWHERE, *THEMSELVES], OTHERS)],
        covered=2,
    ),
)
def test_no_register_is_spilled_and_16_bytes_move_at_a_time(kind: Kind, capability: tuple[int, int]) -> None:
    config, spilled, ptx = compiled(kind, capability)
    assert spilled == 0
    assert ptx.count("ld.global.v4.b32") >= (1 if config.forward else 2) * config.unroll
    assert "dX" not in config.outputs or ptx.count("st.global.v4.b32") >= config.unroll
    assert "ld.local" not in ptx
    assert ("L2::evict_last" in ptx) == (config.persistent and capability >= (8, 0))  # the tiles' sums


FEW: list[tuple[str, str, int, int]] = [
    *product((EXACT, FAST), (b, f, d), [100], [3072, 1001]),
    *product((EXACT, FAST), (b, f, d), [30], [1001]),
    *product((EXACT, FAST), (b, f, d), [512], [3072]),
    *product((EXACT, FAST), (b, d), [300], [1001]),
]
"""Operator, type, rows and columns."""


@pytest.mark.parametrize(
    ("kind", "capability"),
    parameters([*product(FEW[::6], HOPPER)], [*product(FEW, HOPPER), *product(FEW[::4], OTHERS)], covered=2),
)
def test_no_register_is_spilled_where_a_tile_has_all_rows(
    kind: tuple[str, str, int, int], capability: tuple[int, int]
) -> None:
    operator, dtype, rows, columns = kind
    size, bias = ((shape, np.dtype(dtype)) for shape in ((rows, columns), (columns,)))
    matrix, vector = (Tensor(kind, shape, c_strides(shape, kind.itemsize), 256) for shape, kind in (size, bias))
    inputs = {"dY": matrix, "X": matrix, "B": vector}
    axes: dict[str, Any] = {"rows": (rows,), "columns": columns}
    call = Call(operator, inputs, {"dX": matrix, "dB": vector}, {}, axes, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        made = plan(call)
    assert "single_block" in made.kernel
    (spec,) = device.specs
    assert spec.compile().spilled == 0
