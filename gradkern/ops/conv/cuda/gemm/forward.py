"""Y by matrix products: `program` has the equations. Y is initialised with the bias, and products are added to it."""

from __future__ import annotations

from dataclasses import replace

from gradkern.call import Refusal
from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.gemm.data_col2im import filter_rows
from gradkern.ops.conv.cuda.gemm.im2col import Address, Im2colStep, MatrixLayout, gather, scatter
from gradkern.ops.conv.cuda.gemm.layout import AffineWindow, Operand, Residues, Slice
from gradkern.ops.conv.cuda.gemm.program import (
    ALIGNED,
    BIAS,
    GemmProblem,
    GemmProgram,
    cut,
    matrix_in_scratch,
    pointwise,
    pointwise_product,
    slices,
)

__all__ = ["forward_im2col", "forward_pointwise"]


def forward_pointwise(problem: GemmProblem) -> GemmProgram:
    """Y[n, m, p] = sum over c of W[m, c] * X[n, c, p]."""
    geometry, Y, X, W = pointwise(problem)
    left, first = Matrix(W.number, 0, W.image, W.channel), _bias_in_Y(problem)
    product = pointwise_product(problem, left, X, Y, geometry.filters, geometry.channels)
    return GemmProgram((*first, replace(product, accumulate=bool(first))), 0)


def forward_im2col(problem: GemmProblem, slice_bytes: int) -> GemmProgram:
    """Y from the im2col columns of X, slice after slice; a matrix for each image where Y has one for each."""
    geometry, X, Y, item = problem.geometry, problem.X, problem.dY, problem.item
    if Y.distance is None or 1 not in (Y.channel, Y.distance):
        raise Refusal("an image of Y is not a matrix")
    by_image, adjacent = not Y.endless, X.channel == 1 and X.channels > 1
    grid, rows = AffineWindow.of(geometry.weight_window()), geometry.channels * geometry.taps
    left, packing, start, taps_inside = filter_rows(problem, adjacent)
    wide = geometry.group * rows
    room = slice_bytes // (wide * item)
    first = _bias_in_Y(problem)
    steps: list[Im2colStep | Product] = [*packing, *first]
    end = start
    for image, images in slices(geometry.images, grid.positions, room):
        for position, count in cut(grid.positions, room):
            piece = Slice(image, images, position, count)
            lead = round_up(wide if adjacent else count if by_image else piece.length, 32)
            columns, right, group = matrix_in_scratch(
                geometry.channels, geometry.taps, geometry.group, piece, lead, adjacent, item, start, by_image,
                taps_outside=not taps_inside,
            )  # fmt: skip
            steps.append(gather(X, grid, piece, columns, problem.device))
            step = Y.distance if by_image or images == 1 else Y.step
            at = image * Y.strides[0] + position * step * item
            along, batch = (count, images) if by_image else (piece.length, 1)
            result = Matrix(Y.number, at, Y.channel, step)
            product = problem.product(geometry.filters, along, rows, left.transposed, right, result)
            batches = (
                Batch(batch, 0, columns.image // item, Y.image),
                Batch(geometry.group, geometry.filters * left.column, group, geometry.filters * Y.channel),
            )
            steps.append(replace(product, batches=batches, accumulate=bool(first)))
            size = piece.length * columns.position if adjacent else batch * geometry.group * columns.group
            end = max(end, start + size)
    return GemmProgram(tuple(steps), round_up(end, ALIGNED))


def _bias_in_Y(problem: GemmProblem) -> tuple[Im2colStep, ...]:
    """Y = the bias at every position, if there is one."""
    B, Y = problem.B, problem.dY
    if B is None:
        return ()
    step = B.strides[0]
    layout = MatrixLayout(Address(BIAS), 0, 0, Y.channels * step, step, 0, group_channels=Y.channels)
    zero, one = (0, 0, 0), (1, 1, 1)
    whole = Residues(steps=one, before=zero, grid=Y.sizes, lows=zero, slots=one, live=one, start=zero)
    to: Operand = replace(Y, alignment=min(Y.alignment, B.alignment))
    return (scatter(to, whole, Slice(0, Y.images, 0, Y.positions), layout, problem.device),)
