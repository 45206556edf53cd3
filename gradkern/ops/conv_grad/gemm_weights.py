"""dW by matrix products: `gemm_sides` has the equations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.ops.conv_grad.gemm_sides import (
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
    up,
)
from gradkern.ops.conv_grad.gemm_views import Grid, Slice, View
from gradkern.ops.conv_grad.moves import Layout, Move, Place, add_shares, gather
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
        self._direct = shares == 1 and sides.dtype == sides.sum_dtype and _is_matrix(W, taps_inside)
        self._matrix = Matrix(OUTPUT, 0, W.image, 1) if self._direct else Matrix(SCRATCH, start, self._rows, 1)
        self._start, self.scratch = start, 0 if self._direct else up(shares * self.size * sides.sum_item, ALIGNED)

    def groups(self, left: int, right: int) -> Batch:
        return Batch(self._geometry.group, left, right, self._geometry.filters * self._matrix.row)

    def product(self, inner: int, left: Matrix, right: Matrix) -> Product:
        return self._sides.product(self._geometry.filters, self._rows, inner, left, right, self._matrix)

    def products(
        self, inner: int, left: Matrix, right: Matrix, groups: tuple[int, int], accumulate: bool = False
    ) -> Iterator[Product]:
        """The product, its sum cut into equal shares; what is left over is added to the first."""
        item, chunk = self._sides.item, inner // self._shares
        if not chunk and not accumulate:
            raise Unfit("there are fewer terms than shares")
        batch = Batch(self._shares, chunk * left.column, chunk * right.row, self.size)
        if chunk:
            whole = self.product(chunk, left, right)
            yield replace(whole, accumulate=accumulate, batches=(batch, self.groups(*groups)))
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
        return (add_shares(sides.W, source, self._shares, distance, sides.sum_dtype, self._taps_inside, sides.which),)


def _is_matrix(W: View, taps_inside: bool) -> bool:
    """Whether each filter's elements lie end to end in the order of the columns, and filters do not overlap."""
    sizes = (W.channels, *W.sizes) if taps_inside else (*W.sizes, W.channels)
    strides = (W.strides[1], *W.strides[2:]) if taps_inside else (*W.strides[2:], W.strides[1])
    expected = W.item
    for size, stride in zip(sizes[::-1], strides[::-1], strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return W.images == 1 or W.strides[0] >= expected


def weight_columns(sides: Sides, slice_bytes: int, shares: int) -> Program:
    """dW from the columns of X, slice after slice."""
    geometry, upstream, data, item = sides.geometry, sides.Y, sides.X, sides.item
    grid, rows = Grid.of(geometry.weight_window()), geometry.channels * geometry.taps
    adjacent = data.channel == 1 and data.channels > 1  # then columns have their channels adjacent, too
    wide = geometry.group * rows
    as_is = upstream.endless and 1 in (upstream.channel, upstream.step)
    one_image = upstream.distance is not None and 1 in (upstream.channel, upstream.distance)
    held = wide + (0 if as_is else upstream.channels)
    steps: list[Move | Product] = []
    room = slice_bytes // (held * item)
    runs = list(slices(geometry.images, grid.positions, room))
    pieces = [Slice(*images, *positions) for images in runs for positions in cut(grid.positions, room)]
    longest = max(piece.length for piece in pieces)
    columns_bytes = up(up(wide, 32) * up(longest, 32) * item, ALIGNED)
    copy_bytes = 0 if as_is else up(upstream.channels * up(longest, 32) * item, ALIGNED)
    sums = _Sums(sides, shares, not adjacent, columns_bytes + copy_bytes)
    for piece in pieces:
        lead = up(wide if adjacent else piece.length, 32)
        columns, right, group = columns_of(
            geometry.channels, geometry.taps, geometry.group, piece, lead, adjacent, item
        )
        steps.append(gather(data, grid, piece, columns, sides.which))
        if as_is:
            start = (piece.image * upstream.positions + piece.start) * upstream.step * item
            left = Matrix(Y, start, upstream.channel, upstream.step)
        elif one_image and piece.images == 1:
            start = piece.image * upstream.strides[0] + piece.start * (upstream.distance or 0) * item
            left = Matrix(Y, start, upstream.channel, upstream.distance or 0)
        else:
            lead = up(piece.length, 32)
            place = Place(SCRATCH, columns_bytes)
            copy = Layout(place, piece.count * item, item, 0, lead * item, 0, upstream.channels)
            steps.append(gather(upstream, Grid.of(geometry.upstream_window()), piece, copy, sides.which))
            left = Matrix(SCRATCH, columns_bytes, lead, 1)
        groups = geometry.filters * left.row, group
        steps += sums.products(piece.length, left, right.transposed, groups, accumulate=piece is not pieces[0])
    return Program((*steps, *sums.last()), columns_bytes + copy_bytes + sums.scratch)
