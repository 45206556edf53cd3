"""The matrix products of Y, dX and dW, and the steps around them: `program` has the equations.

Y and dX  products write into them. With strides of 1 dX is a convolution of dY, whose taps go backwards. Y is
          initialised with the bias, and products are added to it
dX        by one product for all filter taps and col2im, the sum over them. There are C rows a tap, where the columns of
          dY have M, and dY is rarely copied: it suits strides and few channels
dW        products are added to it, or to shares of it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from gradkern.call import Refusal
from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.ops.conv.cuda.gemm.im2col import (
    Address,
    Im2colStep,
    MatrixLayout,
    add_shares,
    col2im,
    gather,
    pack,
)
from gradkern.ops.conv.cuda.gemm.layout import AffineWindow, Operand, Slice
from gradkern.ops.conv.cuda.gemm.program import (
    ALIGNED,
    BIAS,
    DY,
    OTHER,
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


def weight_pointwise(problem: GemmProblem, shares: int) -> GemmProgram:
    """dW[m, c] = sum over n, p of dY[n, m, p] * X[n, c, p]."""
    geometry, dY, X, _ = pointwise(problem)
    sums = _Sums(problem, shares)
    left, right = Matrix(DY, 0, dY.channel, dY.step), Matrix(OTHER, 0, X.step, X.channel)
    groups = geometry.filters * dY.channel, geometry.channels * X.channel
    if dY.endless and X.endless:
        products = sums.products(geometry.images * dY.positions, left, right, groups)
        return GemmProgram((*products, *sums.last()), sums.scratch)
    left, right = replace(left, column=dY.distance or 0), replace(right, row=X.distance or 0)
    steps: list[Im2colStep | Product] = []
    for image in range(0, geometry.images, shares):  # every image is added to the sum of its place
        at_left = replace(left, start=image * dY.strides[0])
        at_right = replace(right, start=image * X.strides[0])
        count = min(shares, geometry.images - image)
        steps.append(
            replace(
                sums.product(dY.positions, at_left, at_right),
                batches=(Batch(count, dY.image, X.image, sums.size), sums.groups(*groups)),
                accumulate=image > 0,
            )
        )
    return GemmProgram((*steps, *sums.last()), sums.scratch)


class _Sums:
    """The target of dW's products: dW itself, or shares in scratch memory from its address `start` on."""

    def __init__(self, problem: GemmProblem, shares: int, start: int = 0) -> None:
        geometry, W = problem.geometry, problem.W
        self._problem, self._geometry, self._shares = problem, geometry, shares
        self._rows = geometry.channels * geometry.taps
        self.size = W.images * self._rows  # elements of one share
        self.taps_inside = W.is_matrix(taps_inside=True) or not W.is_matrix(taps_inside=False)
        self._direct = shares == 1 and problem.dtype == problem.sum_dtype and W.is_matrix(self.taps_inside)
        self._matrix = Matrix(OUTPUT, 0, W.image, 1) if self._direct else Matrix(SCRATCH, start, self._rows, 1)
        self._start, self.scratch = (
            start,
            0 if self._direct else round_up(shares * self.size * problem.sum_item, ALIGNED),
        )

    def groups(self, left: int, right: int) -> Batch:
        return Batch(self._geometry.group, left, right, self._geometry.filters * self._matrix.row)

    def product(self, inner: int, left: Matrix, right: Matrix) -> Product:
        return self._problem.product(self._geometry.filters, self._rows, inner, left, right, self._matrix)

    def products(self, inner: int, left: Matrix, right: Matrix, groups: tuple[int, int]) -> Iterator[Product]:
        """The product with its sum divided into equal shares; the remainder is added to the first."""
        item, chunk = self._problem.item, inner // self._shares
        if not chunk:
            raise Refusal("there are fewer terms than shares")
        batch = Batch(self._shares, chunk * left.column, chunk * right.row, self.size)
        yield replace(self.product(chunk, left, right), batches=(batch, self.groups(*groups)))
        done = chunk * self._shares
        if done < inner:
            left = replace(left, start=left.start + done * left.column * item)
            right = replace(right, start=right.start + done * right.row * item)
            rest = self.product(inner - done, left, right)
            yield replace(rest, accumulate=True, batches=(self.groups(*groups),))

    def last(self) -> tuple[Im2colStep, ...]:
        """The step that adds the shares to dW."""
        if self._direct:
            return ()
        problem, source, distance = self._problem, Address(SCRATCH, self._start), self.size * self._problem.sum_item
        return (
            add_shares(problem.W, source, self._shares, distance, problem.sum_dtype, self.taps_inside, problem.device),
        )


def weight_im2col(problem: GemmProblem, slice_bytes: int, by_image: bool) -> GemmProgram:
    """dW from the im2col columns of X, slice after slice. by_image: each image of a slice has a matrix and a share."""
    geometry, dY, X, item = problem.geometry, problem.dY, problem.X, problem.item
    grid, rows = AffineWindow.of_X(geometry), geometry.channels * geometry.taps
    wide = geometry.group * rows
    endless = dY.endless and 1 in (dY.channel, dY.step)
    matrix = dY.distance is not None and 1 in (dY.channel, dY.distance)
    if by_image and not matrix:
        raise Refusal("an image is not a matrix")
    copied = not (endless or by_image)
    room = slice_bytes // ((wide + copied * dY.channels) * item)
    runs = list(slices(geometry.images, grid.positions, room))
    pieces = [Slice(*images, *positions) for images in runs for positions in cut(grid.positions, room)]
    images, along = max(piece.images for piece in pieces), round_up(max(piece.count for piece in pieces), 32)
    if not by_image:
        along = round_up(max(piece.length for piece in pieces), 32)
    columns_bytes = round_up(wide * along * (images if by_image else 1) * item, ALIGNED)
    copy_bytes = round_up(dY.channels * along * item, ALIGNED) if copied else 0
    sums = _Sums(problem, images if by_image else 1, columns_bytes + copy_bytes)
    steps: list[Im2colStep | Product] = []
    for piece in pieces:
        lead = round_up(piece.count if by_image else piece.length, 32)
        columns, right, group = matrix_in_scratch(
            geometry.channels, geometry.taps, geometry.group, piece, lead, item, by_image=by_image,
            taps_outside=not sums.taps_inside,
        )  # fmt: skip
        steps.append(gather(X, grid, piece, columns, problem.device))
        if matrix and (by_image or piece.images == 1):
            start = piece.image * dY.strides[0] + piece.start * (dY.distance or 0) * item
            left = Matrix(DY, start, dY.channel, dY.distance or 0)
        elif endless:
            start = (piece.image * dY.positions + piece.start) * dY.step * item
            left = Matrix(DY, start, dY.channel, dY.step)
        else:
            lead = round_up(piece.length, 32)
            place = Address(SCRATCH, columns_bytes)
            copy = MatrixLayout(place, piece.count * item, item, 0, lead * item, 0, dY.channels)
            steps.append(gather(dY, AffineWindow.plain(dY.sizes), piece, copy, problem.device))
            left = Matrix(SCRATCH, columns_bytes, lead, 1)
        product = sums.product(piece.count if by_image else piece.length, left, right.transposed)
        shares = Batch(piece.images if by_image else 1, dY.image, columns.image // item, sums.size)
        batches = shares, sums.groups(geometry.filters * left.row, group)
        steps.append(replace(product, batches=batches, accumulate=piece is not pieces[0]))
    return GemmProgram((*steps, *sums.last()), columns_bytes + copy_bytes + sums.scratch)
