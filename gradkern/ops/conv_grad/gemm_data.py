"""dX by matrix products: `gemm_sides` has the equations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.ops.conv_grad.gemm_sides import (
    ALIGNED,
    OTHER,
    OUTPUT,
    SCRATCH,
    Clear,
    Program,
    Sides,
    Y,
    columns_of,
    cut,
    pointwise,
    slices,
    up,
)
from gradkern.ops.conv_grad.geometry import Part
from gradkern.ops.conv_grad.moves import Grid, Layout, Move, Place, Slice, View, gather, pack, scatter
from gradkern.search.candidate import Unfit

__all__ = ["data_columns", "data_pointwise"]


def data_pointwise(sides: Sides) -> Program:
    """dX[n, c, p] = sum over m of W[m, c] * dY[n, m, p]."""
    geometry, upstream, data, weights = pointwise(sides)
    left = Matrix(OTHER, 0, weights.channel, weights.image)
    right = Matrix(Y, 0, upstream.channel, upstream.step)
    result = Matrix(OUTPUT, 0, data.channel, data.step)
    filters, channels = geometry.filters, geometry.channels
    groups = Batch(geometry.group, filters * weights.image, filters * upstream.channel, channels * data.channel)
    if upstream.endless and data.endless:
        positions, images = geometry.images * upstream.positions, Batch(1, 0, 0, 0)
    else:
        positions, images = upstream.positions, Batch(geometry.images, 0, upstream.image, data.image)
        right, result = replace(right, column=upstream.distance or 0), replace(result, column=data.distance or 0)
    product = sides.product(channels, positions, filters, left, right, result)
    return Program((replace(product, batches=(images, groups)),), 0)


def data_columns(sides: Sides, slice_bytes: int, by_image: bool) -> Program:
    """dX from the columns of dY, slice after slice. by_image: a matrix for each image, as dX has them in NCHW."""
    parts = sides.geometry.data_parts()
    steps: list[Move | Product | Clear] = []
    if any(not part.window.taps for part in parts):  # positions that no tap reaches
        first, last = sides.output.extent
        if last - first != sides.output.nbytes or first:
            raise Unfit("dX has gaps, and zeros to be written")
        steps.append(Clear(sides.output.nbytes))
    live = [_DataPart(sides, part, by_image) for part in parts if part.window.taps]
    if not live:
        return Program(tuple(steps), 0)
    start = 0
    for part in live:
        part.packed = start
        steps.append(part.pack())
        start = up(start + part.packed_bytes, ALIGNED)
    room = slice_bytes // max(part.held for part in live)
    for images in slices(sides.geometry.images, max(part.grid.positions for part in live), room):
        for part in live:  # one after another, so that what they write beside one another is joined in the L2 cache
            for positions in cut(part.grid.positions, room):
                steps += part.steps(Slice(*images, *positions), start)
    return Program(tuple(steps), max(start, *(part.end for part in live)))


class _DataPart:
    """One part of dX: the product of W, with the part's taps, and the columns of dY."""

    def __init__(self, sides: Sides, part: Part, by_image: bool) -> None:
        geometry, upstream, data = sides.geometry, sides.Y, sides.X
        self._sides, self._geometry = sides, geometry
        self.grid = Grid.of(part.window)
        self._places, self._taps_of_W = Grid.of_phases(part, geometry.strides)
        self._adjacent = upstream.channel == 1 and upstream.channels > 1
        self._taps, self._phases = prod(self.grid.taps), prod(self._places.taps)
        self._results = self._phases * geometry.channels
        same = self.grid.taps == (1, 1, 1) and self.grid.firsts == (0, 0, 0) and self.grid.grid == upstream.sizes
        unit = upstream.distance is not None and 1 in (upstream.channel, upstream.distance)
        self._as_is = same and unit  # the columns of dY are dY
        self._by_image = (by_image and not self._adjacent) or (self._as_is and not upstream.endless)
        whole = self._phases == 1 and self._places.steps == (1, 1, 1) and self._places.firsts == (0, 0, 0)
        unit = data.distance is not None and 1 in (data.channel, data.distance)
        self._direct = whole and unit and self.grid.grid == data.sizes and (self._by_image or data.endless)
        self._width = geometry.group * geometry.filters * self._taps
        self.held = sides.item * ((0 if self._as_is else self._width) + geometry.group * self._results)
        self.packed, self.packed_bytes = 0, geometry.group * geometry.filters * self._taps * self._results * sides.item
        self.end = 0  # of the scratch memory of the longest slice

    def pack(self) -> Move:
        """packed[group, k, (h, c)]: k is (tap, filter) where the filters of dY are adjacent, else (filter, tap)."""
        geometry, item = self._geometry, self._sides.item
        row = self._results * item
        filter_, tap = (row, geometry.filters * row) if self._adjacent else (self._taps * row, row)
        group = geometry.filters * self._taps * row
        layout = Layout(Place(SCRATCH, self.packed), 0, geometry.channels * item, group, filter_, tap, 0)
        counts = self._places.taps, self.grid.taps
        return pack(self._sides.W, self._taps_of_W, counts, geometry.filters, layout, self._sides.which)

    def steps(self, piece: Slice, start: int) -> Iterator[Move | Product]:
        """Columns, product, and its result into dX; `start` is where free scratch memory begins."""
        geometry, upstream, data, which = self._sides.geometry, self._sides.Y, self._sides.X, self._sides.which
        count, along = (piece.images, piece.count) if self._by_image else (1, piece.length)
        inner = geometry.filters * self._taps
        left, group_left = Matrix(SCRATCH, self.packed, 1, self._results), inner * self._results
        if self._as_is:
            right, image_right = self._on(upstream, Y, piece), upstream.image
            group_right = geometry.filters * upstream.channel
        else:
            columns, right, group_right = self._matrix(geometry.filters, self._taps, piece, start, False)
            image_right, start = columns.image // self._sides.item, start + self._bytes(inner, piece)
            yield gather(upstream, self.grid, piece, columns, which)
        results = None
        if self._direct:
            result, image, group = self._on(data, OUTPUT, piece), data.image, geometry.channels * data.channel
        else:
            results, result, group = self._matrix(geometry.channels, self._phases, piece, start, True)
            image, start = results.image // self._sides.item, start + self._bytes(self._results, piece)
        self.end = max(self.end, start)
        product = self._sides.product(self._results, along, inner, left, right, result)
        batches = Batch(count, 0, image_right, image), Batch(geometry.group, group_left, group_right, group)
        yield replace(product, batches=batches)
        if results is not None:
            yield scatter(data, self._places, piece, results, which)

    def _on(self, view: View, operand: int, piece: Slice) -> Matrix:
        """The positions of a slice of a tensor as it lies, as columns of a matrix."""
        step = (view.distance or 0) if self._by_image or piece.images == 1 else view.step
        start = piece.image * view.strides[0] + piece.start * step * view.item
        return Matrix(operand, start, view.channel, step)

    def _lead(self, rows: int, piece: Slice) -> int:
        """Elements from one row of a slice's matrix to the next; a row has the channels, or else the positions."""
        along = piece.count if self._by_image else piece.length
        return up(self._sides.geometry.group * rows if self._adjacent else along, 32)

    def _bytes(self, rows: int, piece: Slice) -> int:
        others = piece.length if self._adjacent else self._sides.geometry.group * rows
        images = piece.images if self._by_image and not self._adjacent else 1
        return up(images * others * self._lead(rows, piece) * self._sides.item, ALIGNED)

    def _matrix(
        self, channels: int, taps: int, piece: Slice, start: int, taps_outside: bool
    ) -> tuple[Layout, Matrix, int]:
        lead = self._lead(channels * taps, piece)
        groups, item = self._sides.geometry.group, self._sides.item
        return columns_of(
            channels, taps, groups, piece, lead, self._adjacent, item, start, self._by_image, taps_outside
        )
