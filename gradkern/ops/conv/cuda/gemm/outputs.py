"""Y and dX by matrix products that write into them: `program` has the equations.

With strides of 1 dX is a convolution of dY, whose taps go backwards. Y is initialised with the bias, and products are
added to it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from gradkern.call import Refusal
from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.gemm.data_col2im import filter_rows, packed
from gradkern.ops.conv.cuda.gemm.im2col import Address, Im2colStep, MatrixLayout, gather
from gradkern.ops.conv.cuda.gemm.layout import AffineWindow, Operand, Slice
from gradkern.ops.conv.cuda.gemm.program import (
    ALIGNED,
    BIAS,
    OUTPUT,
    SCRATCH,
    GemmProblem,
    GemmProgram,
    cut,
    matrix_in_scratch,
    pointwise,
    slices,
)


def output_pointwise(problem: GemmProblem) -> GemmProgram:
    """Y[n, m, p] = sum over c of W[m, c] * X[n, c, p]; dX[n, c, p] = sum over m of W[m, c] * dY[n, m, p]."""
    geometry, dY, X, W = pointwise(problem)
    source, target, left = X, dY, Matrix(W.number, 0, W.image, W.channel)
    rows, inner = geometry.filters, geometry.channels
    if X.number == OUTPUT:
        source, target, left, rows, inner = dY, X, left.transposed, inner, rows
    right = Matrix(source.number, 0, source.channel, source.step)
    result = Matrix(target.number, 0, target.channel, target.step)
    groups = Batch(geometry.group, geometry.filters * W.image, inner * source.channel, rows * target.channel)
    if source.endless and target.endless:
        positions, images = geometry.images * source.positions, Batch(1, 0, 0, 0)
    else:
        positions, images = source.positions, Batch(geometry.images, 0, source.image, target.image)
        right, result = replace(right, column=source.distance or 0), replace(result, column=target.distance or 0)
    first = _bias_in_Y(problem)
    product = problem.product(rows, positions, inner, left, right, result)
    return GemmProgram((*first, replace(product, batches=(images, groups), accumulate=bool(first))), 0)


def output_im2col(problem: GemmProblem, slice_bytes: int) -> GemmProgram:
    """Y from the im2col columns of X, or dX from those of dY, slice after slice; a matrix for each image where the
    output has one for each.
    """
    geometry, item = problem.geometry, problem.item
    if problem.X.number == OUTPUT:
        if set(geometry.strides) != {1}:
            raise Refusal("dX of a convolution with strides is no convolution of dY")
        source, target, grid = problem.dY, problem.X, AffineWindow.of_dY(geometry)
        rows, channels = geometry.channels, geometry.filters
    else:
        source, target, grid = problem.X, problem.dY, AffineWindow.of_X(geometry)
        rows, channels = geometry.filters, geometry.channels
    if target.distance is None or 1 not in (target.channel, target.distance):
        raise Refusal("an image of the output is not a matrix")
    by_image = not target.endless
    if problem.X.number == OUTPUT:
        left, group_left, packing, start = _data_weights(problem)
        taps_inside = True
    else:
        left, packing, start, taps_inside = filter_rows(problem)
        left, group_left = left.transposed, geometry.filters * left.column
    inner = channels * geometry.taps
    room = slice_bytes // (geometry.group * inner * item)
    first = _bias_in_Y(problem)
    steps: list[Im2colStep | Product] = [*packing, *first]
    end = start
    for image, images in slices(geometry.images, grid.positions, room):
        for position, count in cut(grid.positions, room):
            piece = Slice(image, images, position, count)
            along, batch = (count, images) if by_image else (piece.length, 1)
            columns, right, group = matrix_in_scratch(
                channels, geometry.taps, geometry.group, piece, round_up(along, 32), item, start, by_image,
                taps_outside=not taps_inside,
            )  # fmt: skip
            steps.append(gather(source, grid, piece, columns, problem.device))
            step = target.distance if by_image or images == 1 else target.step
            at = image * target.strides[0] + position * step * item
            result = Matrix(target.number, at, target.channel, step)
            batches = (
                Batch(batch, 0, columns.image // item, target.image),
                Batch(geometry.group, group_left, group, rows * target.channel),
            )
            product = problem.product(rows, along, inner, left, right, result)
            steps.append(replace(product, batches=batches, accumulate=bool(first)))
            end = max(end, start + batch * geometry.group * columns.group)
    return GemmProgram(tuple(steps), round_up(end, ALIGNED))


def _data_weights(problem: GemmProblem) -> tuple[Matrix, int, list[Im2colStep], int]:
    """W as a matrix with a row for each channel of X and columns for (filter, tap), and its elements from group to
    group; the step that packs it into scratch memory if it must be copied, and the bytes there.
    """
    geometry, W = problem.geometry, problem.W
    rows = geometry.channels * geometry.taps
    if geometry.taps == 1 and 1 in (W.image, W.channel):
        return Matrix(W.number, 0, W.channel, W.image), geometry.filters * W.image, [], 0
    if W.is_matrix(taps_inside=False) and W.image == rows:
        return Matrix(W.number, 0, 1, geometry.channels), geometry.filters * rows, [], 0
    packing, size = packed(problem)
    return Matrix(SCRATCH, 0, 1, geometry.channels), geometry.filters * rows, [packing], size


def _bias_in_Y(problem: GemmProblem) -> tuple[Im2colStep, ...]:
    """Y = the bias at every position, if there is one."""
    B, Y = problem.B, problem.dY
    if B is None:
        return ()
    alignment = min(Y.alignment, B.alignment)
    everywhere = Operand(BIAS, Y.dtype, Y.images, Y.channels, Y.sizes, (0, B.strides[0], 0, 0, 0), alignment)
    position = (Y.distance or 0) * Y.item
    layout = MatrixLayout(Address(OUTPUT), Y.strides[0], position, 0, Y.strides[1], 0, Y.channels)
    whole = Slice(0, Y.images, 0, prod(Y.sizes))
    return (gather(everywhere, AffineWindow.plain(Y.sizes), whole, layout, problem.device),)
