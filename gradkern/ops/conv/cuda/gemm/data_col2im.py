"""dX by one matrix product for all filter taps and col2im, the sum over them: `program` has the equations.

There are C rows a tap, where the columns of dY have M, and dY is rarely copied: it suits strides and few channels.
"""

from __future__ import annotations

from dataclasses import replace

from gradkern.call import Refusal
from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.ops.conv.cuda.gemm.im2col import Address, Im2colStep, MatrixLayout, col2im, gather, pack
from gradkern.ops.conv.cuda.gemm.layout import AffineWindow, Slice
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


def data_col2im(problem: GemmProblem, slice_bytes: int, by_image: bool) -> GemmProgram:
    """products[(c, t), p] = sum over m of W[m, c, t] * dY[m, p], for a run of images at a time; then their sums.

    by_image: each image of dY is a matrix. Else the run is one, and dY is copied if it is in another layout.
    Products are in the type of sums, unless no element of dX is the sum of two.
    """
    geometry, dY, item = problem.geometry, problem.dY, problem.item
    dtype = problem.sum_dtype if geometry.taps_overlap else problem.dtype
    sum_item = ITEMSIZE[dtype]
    if by_image and (dY.distance is None or 1 not in (dY.channel, dY.distance)):
        raise Refusal("an image of dY is not a matrix")
    endless = dY.endless and 1 in (dY.channel, dY.step)
    by_image, copied = by_image and not endless, not (by_image or endless)
    rows, positions = geometry.channels * geometry.taps, dY.positions
    left, packing, weights, taps_inside = filter_rows(problem)
    steps: list[Im2colStep | Product] = [*packing]
    room = slice_bytes // (geometry.group * rows * sum_item + copied * dY.channels * item)
    runs = [Slice(image, images, 0, positions) for image, images in slices(geometry.images, positions, room)]
    pitch = round_up(runs[0].length, 32)  # the longest
    start = weights + (round_up(dY.channels * pitch * item, ALIGNED) if copied else 0)
    end = start
    for run in runs:
        if copied:
            copy = MatrixLayout(Address(SCRATCH, weights), positions * item, item, 0, pitch * item, 0, dY.channels)
            steps.append(gather(dY, AffineWindow.plain(dY.sizes), run, copy, problem.device))
            right = Matrix(SCRATCH, weights, pitch, 1)
        else:
            right = Matrix(DY, run.image * dY.strides[0], dY.channel, dY.distance or 0 if by_image else dY.step)
        along = positions if by_image else run.length
        layout, result, group = matrix_in_scratch(
            geometry.channels, geometry.taps, geometry.group, run, round_up(along, 32), sum_item, start, by_image,
            taps_outside=not taps_inside,
        )  # fmt: skip
        product = problem.product(rows, along, geometry.filters, left, right, result)
        batches = (
            Batch(run.images if by_image else 1, 0, dY.image, layout.image // sum_item),
            Batch(geometry.group, geometry.filters * left.column, geometry.filters * right.row, group),
        )
        steps.append(replace(product, batches=batches, result_dtype=dtype))
        steps.append(col2im(problem.X, geometry, run, layout, dtype, problem.device))
        end = max(end, start + geometry.group * layout.group * (run.images if by_image else 1))
    return GemmProgram(tuple(steps), round_up(end, ALIGNED))


def filter_rows(problem: GemmProblem) -> tuple[Matrix, list[Im2colStep], int, bool]:
    """W as a matrix with a column for each filter, the step that packs it into scratch memory if it must be copied, and
    the bytes there; whether its rows are ordered (channel, tap) or (tap, channel).
    """
    W = problem.W
    taps_inside = W.is_matrix(taps_inside=True)
    if taps_inside or W.is_matrix(taps_inside=False):
        return Matrix(OTHER, 0, 1, W.image), [], 0, taps_inside
    packing, size = packed(problem)
    return Matrix(SCRATCH, 0, 1, problem.geometry.channels * problem.geometry.taps), [packing], size, False


def packed(problem: GemmProblem) -> tuple[Im2colStep, int]:
    """The step that copies W as [filter, tap, channel] to the scratch memory's begin, and the bytes there."""
    geometry, item = problem.geometry, problem.item
    row = geometry.channels * item
    filter_ = geometry.taps * row
    layout = MatrixLayout(Address(SCRATCH), 0, 0, geometry.filters * filter_, filter_, row, geometry.filters)
    return pack(problem.W, layout, problem.device), round_up(problem.W.images * filter_, ALIGNED)
