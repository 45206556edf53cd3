"""dX by one matrix product for all filter taps and col2im, the sum over them: `program` has the equations.

Nothing of dY is copied, and there are C rows a tap, where its columns have M: it suits strides and few channels.
"""

from __future__ import annotations

from dataclasses import replace

from gradkern.call import Refusal
from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.gemm.im2col import Address, Im2colStep, MatrixLayout, col2im, pack
from gradkern.ops.conv.cuda.gemm.layout import AffineWindow, RegularPart, Slice, triple
from gradkern.ops.conv.cuda.gemm.program import (
    ALIGNED,
    DY,
    OTHER,
    SCRATCH,
    GemmProblem,
    GemmProgram,
    matrix_in_scratch,
    slices,
)

__all__ = ["data_col2im", "filter_rows"]


def data_col2im(problem: GemmProblem, slice_bytes: int) -> GemmProgram:
    """products[(c, t), p] = sum over m of W[m, c, t] * dY[m, p], for a run of images at a time; then their sums."""
    geometry, dY, item = problem.geometry, problem.dY, problem.sum_item
    if dY.distance is None or 1 not in (dY.channel, dY.distance):
        raise Refusal("an image of dY is not a matrix")
    adjacent = dY.channel == 1 and dY.channels > 1
    rows, positions = geometry.channels * geometry.taps, dY.positions
    steps: list[Im2colStep | Product] = []
    left, packing, start, taps_inside = filter_rows(problem, adjacent)
    steps += packing
    room = slice_bytes // (geometry.group * rows * item)
    end = start
    for image, images in slices(geometry.images, positions, room):
        run = Slice(image, images, 0, positions)
        lead = round_up(geometry.group * rows if adjacent else positions, 32)
        layout, result, group = matrix_in_scratch(
            geometry.channels, geometry.taps, geometry.group, run, lead, adjacent, item, start,
            by_image=True, taps_outside=not taps_inside,
        )  # fmt: skip
        right = Matrix(DY, image * dY.strides[0], dY.channel, dY.distance)
        batches = (
            Batch(images, 0, dY.image, layout.image // item),
            Batch(geometry.group, geometry.filters * left.column, geometry.filters * dY.channel, group),
        )
        along = positions
        if adjacent and dY.endless:  # then the results are, too
            along, right, batches = run.length, replace(right, column=dY.step), batches[1:]
        product = problem.product(rows, along, geometry.filters, left, right, result)
        steps.append(replace(product, batches=batches, result_dtype=problem.sum_dtype))
        steps.append(col2im(problem.X, geometry, run, layout, problem.sum_dtype, problem.device))
        end = max(end, start + images * layout.image)
    return GemmProgram(tuple(steps), round_up(end, ALIGNED))


def filter_rows(problem: GemmProblem, adjacent: bool) -> tuple[Matrix, list[Im2colStep], int, bool]:
    """W as a matrix with a column for each filter, the step that packs it into scratch memory if it must be copied, and
    the bytes there; whether its rows are ordered (channel, tap), impossible for adjacent channels, or (tap, channel).
    """
    geometry, W = problem.geometry, problem.W
    taps_inside = not adjacent and W.is_matrix(taps_inside=True)
    if taps_inside or W.is_matrix(taps_inside=False):
        return Matrix(OTHER, 0, 1, W.image), [], 0, taps_inside
    rows = geometry.channels * geometry.taps
    size = round_up(geometry.group * geometry.filters * rows * problem.item, ALIGNED)
    return Matrix(SCRATCH, 0, 1, rows), [_packed(problem)], size, False


def _packed(problem: GemmProblem) -> Im2colStep:
    """packed[group, filter, (tap, channel)]"""
    geometry, item = problem.geometry, problem.item
    row = geometry.channels * item
    filter_ = geometry.taps * row
    layout = MatrixLayout(Address(SCRATCH), 0, 0, geometry.filters * filter_, filter_, row, 0)
    zero, one = (0, 0, 0), (1, 1, 1)
    grid = AffineWindow(one, one, triple(geometry.kernel), zero, zero)
    return pack(problem.W, RegularPart(zero, one, grid, zero, zero, one), geometry.filters, layout, problem.device)
