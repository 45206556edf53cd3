"""dX by one matrix product for all taps and a sum over them: `gemm_sides` has the equations.

Nothing of dY is copied, and there are C rows a tap, where its columns have M: it suits strides and few channels.
"""

from __future__ import annotations

from dataclasses import replace

from gradkern.cublas.product import Batch, Matrix, Product
from gradkern.cuda.device_code.columns import up
from gradkern.ops.conv.cuda.gemm.im2col import Layout, Move, Place, pack, sum_taps
from gradkern.ops.conv.cuda.gemm.layout import Grid, PartOfData, Slice
from gradkern.ops.conv.cuda.gemm.program import ALIGNED, OTHER, SCRATCH, Program, Sides, Y, columns_of, slices
from gradkern.search.candidate import Unfit

__all__ = ["data_taps"]


def data_taps(sides: Sides, slice_bytes: int) -> Program:
    """products[(c, t), p] = sum over m of W[m, c, t] * dY[m, p], for a run of images at a time; then their sums."""
    geometry, upstream, item = sides.geometry, sides.Y, sides.sum_item
    if upstream.distance is None or 1 not in (upstream.channel, upstream.distance):
        raise Unfit("an image of dY is no matrix")
    adjacent = upstream.channel == 1 and upstream.channels > 1
    rows, positions = geometry.channels * geometry.taps, upstream.positions
    steps: list[Move | Product] = []
    taps_inside = not adjacent and sides.W.is_matrix(taps_inside=True)
    if taps_inside or sides.W.is_matrix(taps_inside=False):
        left, start = Matrix(OTHER, 0, 1, sides.W.image), 0
    else:
        left, start = Matrix(SCRATCH, 0, 1, rows), up(geometry.group * geometry.filters * rows * sides.item, ALIGNED)
        steps.append(_packed(sides))
    room = slice_bytes // (geometry.group * rows * item)
    end = start
    for image, images in slices(geometry.images, positions, room):
        run = Slice(image, images, 0, positions)
        lead = up(geometry.group * rows if adjacent else positions, 32)
        layout, result, group = columns_of(
            geometry.channels, geometry.taps, geometry.group, run, lead, adjacent, item, start,
            by_image=True, taps_outside=not taps_inside,
        )  # fmt: skip
        right = Matrix(Y, image * upstream.strides[0], upstream.channel, upstream.distance)
        batches = (
            Batch(images, 0, upstream.image, layout.image // item),
            Batch(geometry.group, geometry.filters * left.column, geometry.filters * upstream.channel, group),
        )
        along = positions
        if adjacent and upstream.endless:  # then the results are, too
            along, right, batches = run.length, replace(right, column=upstream.step), batches[1:]
        product = sides.product(rows, along, geometry.filters, left, right, result)
        steps.append(replace(product, batches=batches, result_dtype=sides.sum_dtype))
        steps.append(sum_taps(sides.X, geometry, run, layout, sides.sum_dtype, sides.device))
        end = max(end, start + images * layout.image)
    return Program(tuple(steps), up(end, ALIGNED))


def _packed(sides: Sides) -> Move:
    """packed[group, filter, (tap, channel)]"""
    geometry, item = sides.geometry, sides.item
    row = geometry.channels * item
    filter_ = geometry.taps * row
    layout = Layout(Place(SCRATCH), 0, 0, geometry.filters * filter_, filter_, row, 0)
    zero, one = (0, 0, 0), (1, 1, 1)
    grid = Grid(one, one, geometry.kernel, zero, zero)
    return pack(sides.W, PartOfData(zero, one, grid, zero, zero, one), geometry.filters, layout, sides.device)
