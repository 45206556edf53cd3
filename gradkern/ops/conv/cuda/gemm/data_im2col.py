"""dX by matrix products: `gemm_sides` has the equations."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import up
from gradkern.ops.conv.cuda.gemm.im2col import Layout, Move, Place, gather, pack, scatter
from gradkern.ops.conv.cuda.gemm.layout import PartOfData, Residues, Slice, View
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
    return _DataColumns(sides, slice_bytes, by_image).program()


class _DataColumns:
    """The results of all residues of a slice lie side by side, then one move brings them into dX, zeros too.

    Where there is one residue, and dX is a matrix, products write into dX itself.
    """

    def __init__(self, sides: Sides, slice_bytes: int, by_image: bool) -> None:
        geometry, upstream, data = sides.geometry, sides.Y, sides.X
        self._sides, self._geometry, self._by_image = sides, geometry, by_image
        self._adjacent = upstream.channel == 1 and upstream.channels > 1
        live = [part for part in geometry.data_parts() if part.window.taps]
        if not live:
            raise Unfit("no tap meets an element of dX")
        self._residues = Residues.of(geometry, live)
        self._parts = [_Part(sides, part, by_image) for part in self._residues.of_parts(live)]
        unit = data.distance is not None and 1 in (data.channel, data.distance)
        self._direct = unit and geometry.strides == (1, 1, 1) and (by_image or data.endless)
        columns = sides.item * max(0 if part.as_is else part.width for part in self._parts)
        results = 0 if self._direct else sides.item * data.channels * prod(self._residues.slots)
        self._positions = self._residues.positions
        most = geometry.images * self._positions
        self._room = min(slice_bytes // (columns + results), most) if columns + results else most
        self._room_of_columns = min(slice_bytes // columns, most) if columns else most
        self._packed: list[int] = []

    def program(self) -> Program:
        """Packed weights first; the rest of the scratch memory serves one slice after another."""
        steps: list[Move | Product] = []
        start = 0
        for part in self._parts:
            self._packed.append(start)
            steps.append(part.pack(start))
            start = up(start + part.packed_bytes, ALIGNED)
        end = start
        for image, images in slices(self._geometry.images, self._positions, self._room):
            run = Slice(image, images, 0, self._positions)
            results = None if self._direct else self._results(run, start)
            free = start if results is None else start + self._bytes(run, self._sides.X.channels, results[0])
            for part, packed in zip(self._parts, self._packed, strict=True):
                for first, count in cut(self._positions, self._room_of_columns):
                    piece = Slice(image, images, first, count)
                    made, last = self._part_steps(part, packed, piece, free, results)
                    steps, end = steps + made, max(end, last)
            if results is not None:
                steps.append(scatter(self._sides.X, self._residues, run, results[0], self._sides.device))
        return Program(tuple(steps), end)

    def _part_steps(
        self, part: _Part, packed: int, piece: Slice, start: int, results: tuple[Layout, Matrix, int] | None
    ) -> tuple[list[Move | Product], int]:
        """The columns of a slice, if they are not dY, and their product; and where the scratch memory ends."""
        geometry, upstream, data, item = self._geometry, self._sides.Y, self._sides.X, self._sides.item
        images, along = (piece.images, piece.count) if self._by_image else (1, piece.length)
        steps: list[Move | Product] = []
        if part.as_is:
            right, image_right = self._on(upstream, Y, piece), upstream.image
            group_right = geometry.filters * upstream.channel
        else:
            lead = self._lead(part.width, piece)
            columns, right, group_right = columns_of(
                geometry.filters, part.taps, geometry.group, piece, lead, self._adjacent, item, start, self._by_image
            )
            image_right, start = columns.image // item, start + self._bytes(piece, part.width // part.taps, columns)
            steps.append(gather(upstream, part.grid, piece, columns, self._sides.device))
        if results is None:
            result, image, group = self._on(data, OUTPUT, piece), data.image, geometry.channels * data.channel
            rows, phases = geometry.channels, ()
        else:
            layout, matrix, group = results
            image, slot = layout.image // item, layout.tap // item
            rows, phases = part.rows(geometry.channels, self._residues, slot)
            first = part.slot(self._residues) * slot + piece.start * matrix.column
            result = replace(matrix, start=matrix.start + first * item)
        left, inner = Matrix(SCRATCH, packed, 1, part.results), geometry.filters * part.taps
        product = self._sides.product(rows, along, inner, left, right, result)
        groups = Batch(geometry.group, inner * part.results, group_right, group)
        steps.append(replace(product, batches=(Batch(images, 0, image_right, image), groups, *phases)))
        return steps, start

    def _results(self, run: Slice, start: int) -> tuple[Layout, Matrix, int]:
        geometry, slots = self._geometry, prod(self._residues.slots)
        lead = self._lead(geometry.group * geometry.channels * slots, run)
        item, groups = self._sides.item, geometry.group
        return columns_of(
            geometry.channels, slots, groups, run, lead, self._adjacent, item, start, self._by_image, taps_outside=True
        )

    def _on(self, view: View, operand: int, piece: Slice) -> Matrix:
        """The positions of a slice of a tensor as it lies, as columns of a matrix."""
        step = (view.distance or 0) if self._by_image or piece.images == 1 else view.step
        start = piece.image * view.strides[0] + piece.start * step * view.item
        return Matrix(operand, start, view.channel, step)

    def _lead(self, rows: int, piece: Slice) -> int:
        """Elements from one row of a slice's matrix to the next; a row has the channels, or else the positions."""
        return up(rows if self._adjacent else piece.count if self._by_image else piece.length, 32)

    def _bytes(self, piece: Slice, channels: int, layout: Layout) -> int:
        """The size of a slice's matrix."""
        if self._adjacent:
            return up(piece.length * layout.position, ALIGNED)
        images = piece.images if self._by_image else 1
        return up(images * channels // layout.group_channels * layout.group, ALIGNED)


class _Part:
    """One part of dX: residues whose columns of dY are the same."""

    def __init__(self, sides: Sides, part: PartOfData, by_image: bool) -> None:
        geometry, upstream = sides.geometry, sides.Y
        self._sides, self._part = sides, part
        self.grid = part.grid
        self.taps = prod(self.grid.taps)
        self.results = prod(part.phases) * geometry.channels
        self.width = geometry.group * geometry.filters * self.taps
        self.packed_bytes = self.width * self.results * sides.item
        unit = upstream.distance is not None and 1 in (upstream.channel, upstream.distance)
        same = self.grid.taps == (1, 1, 1) and self.grid.firsts == (0, 0, 0) and self.grid.grid == upstream.sizes
        self.as_is = same and unit and (by_image or upstream.endless)  # the columns of dY are dY
        self._adjacent = upstream.channel == 1 and upstream.channels > 1

    def pack(self, start: int) -> Move:
        """packed[group, k, (h, c)]: k is (tap, filter) where the filters of dY are adjacent, else (filter, tap)."""
        geometry, item = self._sides.geometry, self._sides.item
        row = self.results * item
        filter_, tap = (row, geometry.filters * row) if self._adjacent else (self.taps * row, row)
        group = geometry.filters * self.taps * row
        layout = Layout(Place(SCRATCH, start), 0, geometry.channels * item, group, filter_, tap, 0)
        return pack(self._sides.W, self._part, geometry.filters, layout, self._sides.device)

    def slot(self, residues: Residues) -> int:
        """Of the part's first phase, among the slots of the results."""
        first, second, third = (at - low for at, low in zip(self._part.first, residues.lows, strict=True))
        return (first * residues.slots[1] + second) * residues.slots[2] + third

    def rows(self, channels: int, residues: Residues, slot: int) -> tuple[int, tuple[Batch, ...]]:
        """The rows of results that follow one another, and batches over the phases that lie further apart."""
        rows, packed, distance, together = channels, channels, slot, True
        batches: list[Batch] = []
        for count, slots in zip(self._part.phases[::-1], residues.slots[::-1], strict=True):
            if together:
                rows *= count
            else:
                batches.append(Batch(count, packed, 0, distance))
            together, packed, distance = together and count == slots, packed * count, distance * slots
        return rows, tuple(batches)
