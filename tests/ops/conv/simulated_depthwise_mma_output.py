"""The tensor-core kernel of dX and Y, its own source under the CUDA simulator."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.depthwise import Depthwise, arguments, make
from helpers.guarded import Guarded
from helpers.tolerance import assert_close

from gradkern.cuda.device_code import simulated
from gradkern.ops.conv.cuda.depthwise.mma_output_form import MmaOutputForm
from gradkern.ops.conv.cuda.depthwise.mma_output_kernel import build
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem

b, h = "bfloat16", "float16"


def form_of(case: Depthwise, channels: int = 16, rows: int = 2) -> MmaOutputForm:
    p = DepthwiseProblem.of(make(case)[0])
    g = p.geometry
    source, output = (p.dY, p.X) if case.gradient == "dX" else (p.X, p.dY)
    sizes = (g.out, g.spatial) if case.gradient == "dX" else (g.spatial, g.out)
    begins = tuple(k - 1 - begin if case.gradient == "dX" else begin for k, begin in zip(g.kernel, g.pads_begin))
    drop = lambda plane: (plane.strides[0], *plane.strides[2:])
    return MmaOutputForm(
        case.gradient,
        p.dtype,
        p.channels,
        channels,
        tuple(sizes[0]),
        tuple(sizes[1]),
        tuple(g.kernel),
        begins,
        drop(source),
        drop(output),
        p.W_strides,
        p.bias_stride,
        rows,
    )


def check(case: Depthwise, chunks: int = 1, grid: int | None = None, rows: int = 2) -> MmaOutputForm:
    form = form_of(case, rows=rows)
    form = form if form.moved <= form.threads else form_of(case, rows=2)
    _, arrays, out, expected = make(case)
    partial = Guarded((1, 1), "float32")
    counter = np.zeros(64, np.uint32)
    given = arguments(case, arrays, partial, counter, chunks)
    blocks = form.groups * chunks if grid is None else grid
    simulated.launch(build(form), blocks, form.threads, 1, form.shared_bytes, given)
    for each in arrays.values():
        each.check()
    assert_close("ConvGrad", case.gradient, out, expected)
    return form


def same(g: str, taps: int, images: int, channels: int, size: tuple[int, int], dtype: str = h) -> Depthwise:
    pads = (taps // 2,) * 4
    return Depthwise(
        g, images, channels, size, (taps, taps), pads=pads, dtype=dtype, channels_last=True, biased=g == "Y"
    )


@pytest.mark.parametrize("g", ["dX", "Y"])
@pytest.mark.parametrize("rows", [2, 4])
class TestBoth:
    def test_narrow_images_side_by_side_and_below(self, g, rows) -> None:
        assert check(same(g, 7, 17, 8, (2, 7)), rows=rows if rows == 2 else 2).sides == 16

    def test_four_sides(self, g, rows) -> None:
        assert check(same(g, 5, 6, 8, (3, 28), b), rows=2).sides == 4

    def test_seven_blocks(self, g, rows) -> None:
        assert check(same(g, 3, 3, 16, (5, 56)), rows=rows).blocks == 7

    def test_runs(self, g, rows) -> None:
        check(same(g, 3, 2, 24, (9, 60), b), chunks=3, grid=2, rows=rows)
        check(same(g, 7, 1, 16, (13, 100), b), chunks=2, rows=rows)

    def test_pads_on_one_side(self, g, rows) -> None:
        check(Depthwise(g, 2, 8, (5, 70), (4, 9), pads=(3, 0, 0, 8), dtype=h, channels_last=True, spread=8), rows=rows)
        check(Depthwise(g, 2, 8, (5, 71), (2, 3), pads=(0, 2, 1, 0), dtype=b, channels_last=True), rows=rows)
        check(Depthwise(g, 3, 8, (3, 65), (1, 1), dtype=b, channels_last=True), rows=rows)
