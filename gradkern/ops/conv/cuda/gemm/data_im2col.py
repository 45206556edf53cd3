"""dX by matrix products: `program` has the equations."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from gradkern.call import Refusal
from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.gemm.im2col import Address, Im2colStep, MatrixLayout, gather, pack, scatter
from gradkern.ops.conv.cuda.gemm.layout import Operand, RegularPart, Residues, Slice
from gradkern.ops.conv.cuda.gemm.program import (
    ALIGNED,
    SCRATCH,
    GemmProblem,
    GemmProgram,
    ScratchMatrix,
    cut,
    matrix_in_scratch,
    pointwise,
    pointwise_product,
    slices,
)

__all__ = ["data_im2col", "data_pointwise"]


def data_pointwise(problem: GemmProblem) -> GemmProgram:
    """dX[n, c, p] = sum over m of W[m, c] * dY[n, m, p]."""
    geometry, dY, X, W = pointwise(problem)
    left = Matrix(W.number, 0, W.channel, W.image)
    return GemmProgram((pointwise_product(problem, left, dY, X, geometry.channels, geometry.filters),), 0)


def data_im2col(problem: GemmProblem, slice_bytes: int, by_image: bool) -> GemmProgram:
    """dX from the im2col columns of dY, slice after slice. by_image: a matrix for each image, as dX has in NCHW."""
    return _DataIm2col(problem, slice_bytes, by_image).program()


class _DataIm2col:
    """The results of all residues of a slice are side by side; then one scatter writes them to dX, zeros too.

    Where there is one residue, and dX is a matrix, products write into dX itself.
    """

    def __init__(self, problem: GemmProblem, slice_bytes: int, by_image: bool) -> None:
        geometry, dY, X = problem.geometry, problem.dY, problem.X
        self._problem, self._geometry, self._by_image = problem, geometry, by_image
        self._adjacent = dY.channel == 1 and dY.channels > 1
        live = [part for part in geometry.data_parts() if part.window.taps]
        if not live:
            raise Refusal("no tap meets an element of dX")
        self._residues = Residues.of(geometry, live)
        self._parts = [_PartProduct(problem, part, by_image) for part in self._residues.of_parts(live)]
        unit = X.distance is not None and 1 in (X.channel, X.distance)
        self._direct = unit and geometry.strides == (1, 1, 1) and (by_image or X.endless)
        columns = problem.item * max(0 if part.as_is else part.width for part in self._parts)
        results = 0 if self._direct else problem.item * X.channels * prod(self._residues.slots)
        self._positions = self._residues.positions
        most = geometry.images * self._positions
        self._room = min(slice_bytes // (columns + results), most) if columns + results else most
        self._room_of_columns = min(slice_bytes // columns, most) if columns else most
        self._packed: list[int] = []

    def program(self) -> GemmProgram:
        """Packed weights first; the rest of the scratch memory serves one slice after another."""
        steps: list[Im2colStep | Product] = []
        start = 0
        for part in self._parts:
            self._packed.append(start)
            steps.append(part.pack(start))
            start = round_up(start + part.packed_bytes, ALIGNED)
        end = start
        for image, images in slices(self._geometry.images, self._positions, self._room):
            run = Slice(image, images, 0, self._positions)
            results = None if self._direct else self._results(run, start)
            free = start if results is None else start + self._bytes(run, self._problem.X.channels, results[0])
            for part, packed in zip(self._parts, self._packed, strict=True):
                for first, count in cut(self._positions, self._room_of_columns):
                    piece = Slice(image, images, first, count)
                    made, last = self._part_steps(part, packed, piece, free, results)
                    steps, end = steps + made, max(end, last)
            if results is not None:
                steps.append(scatter(self._problem.X, self._residues, run, results[0], self._problem.device))
        return GemmProgram(tuple(steps), end)

    def _part_steps(
        self,
        part: _PartProduct,
        packed: int,
        piece: Slice,
        start: int,
        results: ScratchMatrix | None,
    ) -> tuple[list[Im2colStep | Product], int]:
        """The columns of a slice, if they are not dY, and their product; and where the scratch memory ends."""
        geometry, dY, X, item = self._geometry, self._problem.dY, self._problem.X, self._problem.item
        images, along = (piece.images, piece.count) if self._by_image else (1, piece.length)
        steps: list[Im2colStep | Product] = []
        if part.as_is:
            right, image_right = self._on(dY, piece), dY.image
            group_right = geometry.filters * dY.channel
        else:
            lead = self._lead(part.width, piece)
            columns, right, group_right = matrix_in_scratch(
                geometry.filters, part.taps, geometry.group, piece, lead, self._adjacent, item, start, self._by_image
            )
            image_right, start = columns.image // item, start + self._bytes(piece, part.width // part.taps, columns)
            steps.append(gather(dY, part.grid, piece, columns, self._problem.device))
        if results is None:
            result, image, group = self._on(X, piece), X.image, geometry.channels * X.channel
            rows, phases = geometry.channels, ()
        else:
            layout, matrix, group = results
            image, slot = layout.image // item, layout.tap // item
            rows, phases = part.rows(geometry.channels, self._residues, slot)
            first = part.slot(self._residues) * slot + piece.start * matrix.column
            result = replace(matrix, start=matrix.start + first * item)
        left, inner = Matrix(SCRATCH, packed, 1, part.results), geometry.filters * part.taps
        product = self._problem.product(rows, along, inner, left, right, result)
        groups = Batch(geometry.group, inner * part.results, group_right, group)
        steps.append(replace(product, batches=(Batch(images, 0, image_right, image), groups, *phases)))
        return steps, start

    def _results(self, run: Slice, start: int) -> ScratchMatrix:
        geometry, slots = self._geometry, prod(self._residues.slots)
        lead = self._lead(geometry.group * geometry.channels * slots, run)
        item, groups = self._problem.item, geometry.group
        return matrix_in_scratch(
            geometry.channels, slots, groups, run, lead, self._adjacent, item, start, self._by_image, taps_outside=True
        )

    def _on(self, tensor: Operand, piece: Slice) -> Matrix:
        """The positions of a slice of a tensor, without a copy, as columns of a matrix."""
        step = (tensor.distance or 0) if self._by_image or piece.images == 1 else tensor.step
        start = piece.image * tensor.strides[0] + piece.start * step * tensor.item
        return Matrix(tensor.number, start, tensor.channel, step)

    def _lead(self, rows: int, piece: Slice) -> int:
        """Elements from one row of a slice's matrix to the next; a row has the channels, or else the positions."""
        return round_up(rows if self._adjacent else piece.count if self._by_image else piece.length, 32)

    def _bytes(self, piece: Slice, channels: int, layout: MatrixLayout) -> int:
        """The size of a slice's matrix."""
        if self._adjacent:
            return round_up(piece.length * layout.position, ALIGNED)
        images = piece.images if self._by_image else 1
        return round_up(images * channels // layout.group_channels * layout.group, ALIGNED)


class _PartProduct:
    """One part of dX: residues whose columns of dY are the same."""

    def __init__(self, problem: GemmProblem, part: RegularPart, by_image: bool) -> None:
        geometry, dY = problem.geometry, problem.dY
        self._problem, self._part = problem, part
        self.grid = part.grid
        self.taps = prod(self.grid.taps)
        self.results = prod(part.phases) * geometry.channels
        self.width = geometry.group * geometry.filters * self.taps
        self.packed_bytes = self.width * self.results * problem.item
        unit = dY.distance is not None and 1 in (dY.channel, dY.distance)
        same = self.grid.taps == (1, 1, 1) and self.grid.firsts == (0, 0, 0) and self.grid.grid == dY.sizes
        self.as_is = same and unit and (by_image or dY.endless)  # the columns of dY are dY
        self._adjacent = dY.channel == 1 and dY.channels > 1

    def pack(self, start: int) -> Im2colStep:
        """packed[group, k, (h, c)]: k is (tap, filter) where the filters of dY are adjacent, else (filter, tap)."""
        geometry, item = self._problem.geometry, self._problem.item
        row = self.results * item
        filter_, tap = (row, geometry.filters * row) if self._adjacent else (self.taps * row, row)
        group = geometry.filters * self.taps * row
        layout = MatrixLayout(Address(SCRATCH, start), 0, geometry.channels * item, group, filter_, tap, 0)
        return pack(self._problem.W, self._part, geometry.filters, layout, self._problem.device)

    def slot(self, residues: Residues) -> int:
        """Of the part's first phase, among the slots of the results."""
        first, second, third = (at - low for at, low in zip(self._part.first, residues.lows, strict=True))
        return (first * residues.slots[1] + second) * residues.slots[2] + third

    def rows(self, channels: int, residues: Residues, slot: int) -> tuple[int, tuple[Batch, ...]]:
        """The rows of adjacent results, and batches over the phases that are further apart."""
        rows, packed, distance, adjacent = channels, channels, slot, True
        batches: list[Batch] = []
        for count, slots in zip(self._part.phases[::-1], residues.slots[::-1], strict=True):
            if adjacent:
                rows *= count
            else:
                batches.append(Batch(count, packed, 0, distance))
            adjacent, packed, distance = adjacent and count == slots, packed * count, distance * slots
        return rows, tuple(batches)
