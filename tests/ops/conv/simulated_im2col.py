"""The kernels between tensors and matrices under the CUDA simulator.

They run the programs of ConvGrad's matrix products in place of their definitions, in guarded memory.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from helpers import simulated
from helpers.conv_gemm import DEVICE, Host, Shape, setting
from helpers.tolerance import assert_close

from gradkern.ops.conv.cuda.gemm import candidates, im2col
from gradkern.ops.conv.cuda.gemm.candidates import GemmAlgorithm
from gradkern.ops.conv.cuda.gemm.im2col_config import Im2colConfig
from gradkern.ops.conv.cuda.gemm.im2col_kernel import build

NCHW, NHWC, GAPS = ("nchw", "nchw", "nchw"), ("nhwc", "nhwc", "nhwc"), ("gaps", "gaps", "gaps")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a warp, and slices of a few positions."""
    monkeypatch.setattr("gradkern.ops.conv.cuda.gemm.program.SHORTEST", 7)
    monkeypatch.setattr(im2col, "Im2colConfig", partial(Im2colConfig, threads=32))


def run(step: im2col.Im2colStep, addresses: tuple[int, int]) -> None:
    arguments = tuple(np.int64(value) for value in (*addresses, *step.arguments[2:]))
    simulated.launch(build(step.config), step.blocks, step.config.threads, 1, step.config.shared_bytes, arguments)


def check(shape: Shape, gradient: str, way: GemmAlgorithm, dtype: str, offset: int = 0) -> list[Im2colConfig]:
    """Compute the gradient; the configs of the kernels that did."""
    given = setting(shape, gradient, dtype, offset=offset)
    program = candidates._program(given.problem, DEVICE, way)
    assert_close("ConvGrad", gradient, Host(given, program.scratch, run).run(program), given.expected)
    return [step.config for step in program.steps if isinstance(step, im2col.Im2colStep)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("layouts", "offset"), [(NCHW, 0), (NHWC, 1)])
def test_every_type(layouts: tuple[str, str, str], offset: int, dtype: str) -> None:
    shape = Shape(2, 1, 10, 9, (5, 4), (3, 2), begin=(1, 0), end=(1, 1), layouts=layouts)
    for gradient in ("dX", "dW"):
        check(shape, gradient, GemmAlgorithm("columns", 1 << 20), dtype, offset)


def test_a_column_of_a_channels_last_filter_has_the_channels_of_each_group_at_a_distance_of_their_own() -> None:
    shape = Shape(2, 2, 10, 3, (4, 3), (3, 2), begin=(1, 0), end=(1, 1), layouts=("nchw", "nchw", "nhwc"))
    for gradient in ("Y", "dW"):
        assert any(config.grouped for config in check(shape, gradient, GemmAlgorithm("columns", 1 << 20), "float32"))


@pytest.mark.parametrize("layouts", [NCHW, NHWC, ("nhwc", "nchw", "nchw"), GAPS])
def test_every_layout_and_group(layouts: tuple[str, str, str]) -> None:
    for gradient in ("dX", "dW"):
        way = GemmAlgorithm("taps" if gradient == "dX" else "columns", 600)
        check(Shape(2, 2, 3, 2, (5, 4), (3, 3), (2, 2), begin=(1, 1), end=(1, 1), layouts=layouts), gradient,
              way, "float32")  # fmt: skip
        behind = Shape(2, 1, 3, 2, (7, 5), (2, 2), (2, 1), end=(-3, -1), layouts=layouts)  # no window is there
        check(behind, gradient, way, "float32")


@pytest.mark.parametrize("images", [2, 9, 37])
def test_shares_are_added_and_rounded_once(images: int) -> None:
    for layouts in (NCHW, ("nchw", "nchw", "nhwc")):
        shape = Shape(images, 1, 3, 4, (6, 5), (2, 1), layouts=layouts)
        configs = check(shape, "dW", GemmAlgorithm("columns", 1 << 20, by_image=True), "bfloat16")
        assert configs[-1].walkers == (8 if images >= 8 else 1)
    check(Shape(images, 1, 3, 4, (6, 5), (2, 1), layouts=NHWC), "dW", GemmAlgorithm("columns", 1 << 20), "bfloat16")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("layouts", [NCHW, NHWC, ("nhwc", "nchw", "nchw"), ("nchw", "nchw", "gaps")])
def test_the_products_of_all_taps_are_added(layouts: tuple[str, str, str], dtype: str) -> None:
    for shape in (
        Shape(2, 2, 4, 3, (5, 4), (3, 3), (2, 1), begin=(1, 1), end=(1, 1), layouts=layouts),
        Shape(2, 1, 9, 2, (7, 4), (2, 3), (1, 2), (3, 1), begin=(2, 0), end=(1, 1), layouts=layouts),
        Shape(2, 2, 4, 3, (6, 5), (2, 2), (2, 3), layouts=layouts),  # no two taps meet an element
    ):
        last = check(shape, "dX", GemmAlgorithm("taps", 1 << 20), dtype)[-1]
        assert (last.kernel, last.word == dtype) == ("col2im", dtype != "bfloat16" or shape.kernel == (2, 2))


def test_counts_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(im2col, "_NARROW", 0)
    for layouts in (NCHW, NHWC):
        shape = Shape(2, 2, 4, 4, (5, 4), (3, 2), begin=(1, 0), end=(1, 1), layouts=layouts)
        assert all(config.wide for config in check(shape, "dX", GemmAlgorithm("columns", 1 << 20), "float32"))
        assert all(config.wide for config in check(shape, "dW", GemmAlgorithm("columns", 300), "float32"))
        assert all(config.wide for config in check(shape, "dX", GemmAlgorithm("taps", 300), "float32"))
