"""dW by matrix products: `program` has the equations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.call import Refusal
from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.gemm.im2col import Address, Im2colStep, MatrixLayout, add_shares, gather
from gradkern.ops.conv.cuda.gemm.layout import AffineWindow, Slice
from gradkern.ops.conv.cuda.gemm.program import (
    ALIGNED,
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
