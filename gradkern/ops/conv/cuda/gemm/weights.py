"""dW by matrix products: `gemm_sides` has the equations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import up
from gradkern.ops.conv.cuda.gemm.im2col import Layout, Move, Place, add_shares, gather
from gradkern.ops.conv.cuda.gemm.layout import Grid, Slice
from gradkern.ops.conv.cuda.gemm.program import (
    ALIGNED,
    OTHER,
    OUTPUT,
    SCRATCH,
    Program,
    Sides,
    Y,
    columns_of,
    cut,
    pointwise,
    slices,
)
from gradkern.search.candidate import Unfit

__all__ = ["weight_columns", "weight_pointwise"]


def weight_pointwise(sides: Sides, shares: int) -> Program:
    """dW[m, c] = sum over n, p of dY[n, m, p] * X[n, c, p]."""
    geometry, upstream, data, _ = pointwise(sides)
    sums = _Sums(sides, shares, taps_inside=True)
    left, right = Matrix(Y, 0, upstream.channel, upstream.step), Matrix(OTHER, 0, data.step, data.channel)
    groups = geometry.filters * upstream.channel, geometry.channels * data.channel
    if upstream.endless and data.endless:
        products = sums.products(geometry.images * upstream.positions, left, right, groups)
        return Program((*products, *sums.last()), sums.scratch)
    left, right = replace(left, column=upstream.distance or 0), replace(right, row=data.distance or 0)
    steps: list[Move | Product] = []
    for image in range(0, geometry.images, shares):  # every image is added to the sum that it has a place in
        at_left = replace(left, start=image * upstream.strides[0])
        at_right = replace(right, start=image * data.strides[0])
        count = min(shares, geometry.images - image)
        steps.append(
            replace(
                sums.product(upstream.positions, at_left, at_right),
                batches=(Batch(count, upstream.image, data.image, sums.size), sums.groups(*groups)),
                accumulate=image > 0,
            )
        )
    return Program((*steps, *sums.last()), sums.scratch)


class _Sums:
    """Where the products of dW add up: in dW itself, or in shares in scratch memory from its address `start` on."""

    def __init__(self, sides: Sides, shares: int, taps_inside: bool, start: int = 0) -> None:
        geometry, W = sides.geometry, sides.W
        self._sides, self._geometry, self._shares = sides, geometry, shares
        self._rows = geometry.channels * geometry.taps
        self.size = W.images * self._rows  # elements of one share
        self._taps_inside = taps_inside
        self._direct = shares == 1 and sides.dtype == sides.sum_dtype and W.is_matrix(taps_inside)
        self._matrix = Matrix(OUTPUT, 0, W.image, 1) if self._direct else Matrix(SCRATCH, start, self._rows, 1)
        self._start, self.scratch = start, 0 if self._direct else up(shares * self.size * sides.sum_item, ALIGNED)

    def groups(self, left: int, right: int) -> Batch:
        return Batch(self._geometry.group, left, right, self._geometry.filters * self._matrix.row)

    def product(self, inner: int, left: Matrix, right: Matrix) -> Product:
        return self._sides.product(self._geometry.filters, self._rows, inner, left, right, self._matrix)

    def products(self, inner: int, left: Matrix, right: Matrix, groups: tuple[int, int]) -> Iterator[Product]:
        """The product, its sum cut into equal shares; what is left over is added to the first."""
        item, chunk = self._sides.item, inner // self._shares
        if not chunk:
            raise Unfit("there are fewer terms than shares")
        batch = Batch(self._shares, chunk * left.column, chunk * right.row, self.size)
        yield replace(self.product(chunk, left, right), batches=(batch, self.groups(*groups)))
        done = chunk * self._shares
        if done < inner:
            left = replace(left, start=left.start + done * left.column * item)
            right = replace(right, start=right.start + done * right.row * item)
            rest = self.product(inner - done, left, right)
            yield replace(rest, accumulate=True, batches=(self.groups(*groups),))

    def last(self) -> tuple[Move, ...]:
        """What brings the shares into dW."""
        if self._direct:
            return ()
        sides, source, distance = self._sides, Place(SCRATCH, self._start), self.size * self._sides.sum_item
        return (add_shares(sides.W, source, self._shares, distance, sides.sum_dtype, self._taps_inside, sides.device),)


def weight_columns(sides: Sides, slice_bytes: int, by_image: bool) -> Program:
    """dW from the columns of X, slice after slice. by_image: each image of a slice has a matrix and a share."""
    geometry, upstream, data, item = sides.geometry, sides.Y, sides.X, sides.item
    grid, rows = Grid.of(geometry.weight_window()), geometry.channels * geometry.taps
    adjacent = data.channel == 1 and data.channels > 1  # then columns have their channels adjacent, too
    wide = geometry.group * rows
    endless = upstream.endless and 1 in (upstream.channel, upstream.step)
    matrix = upstream.distance is not None and 1 in (upstream.channel, upstream.distance)
    if by_image and (adjacent or not matrix):
        raise Unfit("an image is no matrix")
    copied = not (endless or by_image)
    room = slice_bytes // ((wide + copied * upstream.channels) * item)
    runs = list(slices(geometry.images, grid.positions, room))
    pieces = [Slice(*images, *positions) for images in runs for positions in cut(grid.positions, room)]
    images, along = max(piece.images for piece in pieces), up(max(piece.count for piece in pieces), 32)
    if not by_image:
        along = up(max(piece.length for piece in pieces), 32)
    columns_bytes = up(up(wide, 32) * along * (images if by_image else 1) * item, ALIGNED)
    copy_bytes = up(upstream.channels * along * item, ALIGNED) if copied else 0
    sums = _Sums(sides, images if by_image else 1, not adjacent, columns_bytes + copy_bytes)
    steps: list[Move | Product] = []
    for piece in pieces:
        lead = up(wide if adjacent else piece.count if by_image else piece.length, 32)
        columns, right, group = columns_of(
            geometry.channels, geometry.taps, geometry.group, piece, lead, adjacent, item, by_image=by_image
        )
        steps.append(gather(data, grid, piece, columns, sides.device))
        if matrix and (by_image or piece.images == 1):
            start = piece.image * upstream.strides[0] + piece.start * (upstream.distance or 0) * item
            left = Matrix(Y, start, upstream.channel, upstream.distance or 0)
        elif endless:
            start = (piece.image * upstream.positions + piece.start) * upstream.step * item
            left = Matrix(Y, start, upstream.channel, upstream.step)
        else:
            lead = up(piece.length, 32)
            place = Place(SCRATCH, columns_bytes)
            copy = Layout(place, piece.count * item, item, 0, lead * item, 0, upstream.channels)
            steps.append(gather(upstream, Grid.of(geometry.upstream_window()), piece, copy, sides.device))
            left = Matrix(SCRATCH, columns_bytes, lead, 1)
        product = sums.product(piece.count if by_image else piece.length, left, right.transposed)
        shares = Batch(piece.images if by_image else 1, upstream.image, columns.image // item, sums.size)
        batches = shares, sums.groups(geometry.filters * left.row, group)
        steps.append(replace(product, batches=batches, accumulate=piece is not pieces[0]))
    return Program((*steps, *sums.last()), columns_bytes + copy_bytes + sums.scratch)
