"""The GELU kernel compiles for every type, every kind of task and every architecture, as it is meant to be."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product

import pytest
from helpers.bias_gelu import EXACT, FAST

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.bias_gelu.cuda.form import ARGUMENTS, BiasGeluForm, choose

pytestmark = pytest.mark.thorough

b, h, f, d = "bfloat16", "float16", "float32", "float64"
TYPES = [(b, b), (b, f), (h, h), (h, f), (f, f), (d, d)]
OLDER_AND_NEWER = [(7, 5), (8, 0), (10, 0), (12, 0)]
STREAM, SUMS = ("dX",), ("dX", "dB")
Kind = tuple[str, tuple[str, str], int, int, int, tuple[str, ...], tuple[int, int]]
KINDS: list[Kind] = [  # operator, types, rows, columns, fold, outputs, capability
    *product((EXACT, FAST), TYPES, [1 << 15], [4096], [1], [STREAM, SUMS], [(9, 0)]),
    *product((EXACT, FAST), [(b, b), (f, f)], [1 << 15], [1001], [0], [STREAM, SUMS], [(9, 0)]),
    *product((EXACT, FAST), [(b, b), (f, f)], [1 << 15], [8], [1], [STREAM, SUMS], [(9, 0)]),
    *product((EXACT, FAST), [(b, b), (d, d)], [128], [3072], [1], [("dB",), SUMS], [(9, 0)]),
    *product((EXACT, FAST), [(b, f), (d, d)], [1 << 15], [3072], [1], [STREAM, SUMS], OLDER_AND_NEWER),
]


def compiled(kind: Kind) -> tuple[BiasGeluForm, int, str]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.bias_gelu.cuda.kernel import build

    operator, (data, parameter), rows, columns, fold, outputs, capability = kind
    width = 16 // ITEMSIZE[data]
    fold = fold or width
    biases = width if fold == 1 else 1
    form = BiasGeluForm(operator, data, parameter, columns * fold, outputs, width, fold=fold, bias_width=biases)
    form = choose(replace(form, native_bfloat16=capability >= (8, 0)), rows // fold, 132)
    made = compile_kernel(build(form), len(ARGUMENTS), capability, form.threads, form.blocks_per_processor)
    return form, made.spilled, made.ptx


@pytest.fixture(scope="module")
def everything() -> dict[Kind, tuple[BiasGeluForm, int, str]]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(KINDS, pool.map(compiled, KINDS), strict=True))


def test_no_kernel_spills_registers(everything: dict[Kind, tuple[BiasGeluForm, int, str]]) -> None:
    assert {kind: spilled for kind, (_, spilled, _) in everything.items() if spilled} == {}


def test_every_kernel_moves_16_bytes_at_a_time(everything: dict[Kind, tuple[BiasGeluForm, int, str]]) -> None:
    for kind, (form, _, ptx) in everything.items():
        assert ptx.count("ld.global.v4.b32") >= 2 * form.unroll, kind
        assert "dX" not in form.outputs or ptx.count("st.global.v4.b32") >= form.unroll, kind
        assert "ld.local" not in ptx, kind
