"""Every kernel between ConvGrad's tensors and matrices compiles for every architecture, and spills no register."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from inspect import signature
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("nvmath", reason="nvmath-python is not installed")

from helpers.conv_gemm import Shape, setting

from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.gemm import candidates
from gradkern.ops.conv.cuda.gemm.im2col import Im2colStep
from gradkern.ops.conv.cuda.gemm.im2col_form import Im2colForm

pytestmark = pytest.mark.thorough

CAPABILITIES = [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)]
NHWC = ("nhwc", "nhwc", "nhwc")
SHAPES = [
    Shape(9, 1, 16, 16, (9, 9), (3, 3), strides=(2, 2), begin=(1, 1), end=(1, 1)),
    Shape(9, 1, 16, 16, (9, 9), (3, 3), strides=(2, 2), begin=(1, 1), end=(1, 1), layouts=NHWC),
    Shape(2, 4, 16, 16, (16, 16), (2, 2), strides=(2, 2)),
    Shape(2, 4, 16, 16, (16, 16), (2, 2), strides=(2, 2), layouts=NHWC),
]


def forms(capability: tuple[int, int]) -> set[Im2colForm]:
    """What the candidates of the shapes would launch; for one capability of several types."""
    device = Device(0, capability, 132, 65536)
    most = capability == (9, 0)
    types = ("float64", "float32", "bfloat16") if most else ("float32",) if capability < (8, 0) else ("bfloat16",)
    found: set[Im2colForm] = set()
    for shape in SHAPES if most else SHAPES[:2]:
        for dtype in types if shape.group == 1 else types[-1:]:
            for gradient in ("dX", "dW"):
                made = candidates.candidates(setting(shape, gradient, dtype).problem, device)
                steps = (step for each in made for step in each.program.steps)
                found |= {step.form for step in steps if isinstance(step, Im2colStep)}
    return found


def compiled(form: Im2colForm, capability: tuple[int, int]) -> tuple[int, str]:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.ops.conv.cuda.gemm.im2col_kernel import build

    kernel = build(form)
    arguments = len(signature(kernel).parameters)
    made = compile_kernel(kernel, arguments, capability, form.threads, form.blocks_per_processor)
    return made.spilled, made.ptx


@pytest.fixture(scope="module")
def everything() -> dict[tuple[Im2colForm, tuple[int, int]], tuple[int, str]]:
    wanted = [(form, each) for each in CAPABILITIES for form in sorted(forms(each), key=repr)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(wanted, pool.map(compiled, *zip(*wanted, strict=True)), strict=True))


def test_no_kernel_spills_registers(everything: dict[Any, tuple[int, str]]) -> None:
    assert {device: spilled for device, (spilled, _) in everything.items() if spilled} == {}
    assert {form.kernel for form, _ in everything} == {"gather", "scatter", "pack", "add_shares", "col2im"}


def test_accesses_are_as_wide_as_they_mean_to_be(everything: dict[Any, tuple[int, str]]) -> None:
    for (form, capability), (_, ptx) in everything.items():
        assert "ld.local" not in ptx, (form, capability)
        assert ("ld.global.v4.b32" in ptx) == (form.vector_bytes == 16), (form, capability)
        if form.kernel in ("gather", "scatter"):
            assert ("st.global.v4.b32" in ptx) == (form.vector_bytes == 16), (form, capability)
