"""What the tilings of the layer norms and of their gradients weigh alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from gradkern.ops.layer_norm.cuda.row_form import LINE, RowForm

__all__ = ["LEAST_SLICE", "SINGLE", "begins_within_lines", "busy", "clusters", "coalesced", "placed", "vectors"]

LEAST_SLICE = 4096  # bytes of a row: of less, blocks of a cluster wait for each other longer than they work
# which share of an H200's multiprocessors has clusters of so many blocks
_PLACED = {1: 1.0, 2: 1.0, 3: 0.89, 4: 0.91, 6: 0.78, 8: 0.91, 16: 0.85}
_HALVES = 0.97  # the worth of vectors half as wide as alignment allows, which may waste fewer lanes
_ONE_UNIT = 0.7  # that of one vector a thread, where it may hold another row's elements
SINGLE = {8: 0.9, 9: 0.96, 12: 1.0, 16: 1.0}  # of values a thread, where an access is of one element of 2 bytes


def vectors(
    form: RowForm, widest: int, worth: Mapping[int, float], single: Mapping[int, float] = SINGLE
) -> Iterator[tuple[int, int, float]]:
    """Widths of vectors, and how many values a thread may have of a row then, with what that is worth.

    widest: bytes of the widest element; worth: of values a thread; single: the same where an access is of one element
    of 2 bytes.
    """
    halves = form.width // 2 if form.width * widest == 16 and form.width > 1 and not form.by_units else 0
    for width, share in ((form.width, 1.0), (halves, _HALVES)):
        for values, each in (single if width == 1 and widest == 2 else worth).items():
            if width and values % width == 0:
                yield width, values, each * share * (_ONE_UNIT if form.by_units and values == width else 1.0)


def begins_within_lines(form: RowForm, columns: int) -> bool:
    """`form.by_lines`, once it is known how many rows a group takes at once: end to end they may all begin with a line,
    and apart they have places of their own.
    """
    if form.group_rows == 1 or not form.by_lines:
        return form.by_lines
    sizes = (form.data_itemsize, form.upstream_itemsize)
    return form.packed and any(form.group_rows * columns * each % LINE for each in sizes)


def coalesced(form: RowForm) -> float:
    """What it costs where a warp has several rows and takes less than 64 bytes of each at a time."""
    return math.sqrt(min(1.0, form.lanes * form.width * min(form.data_itemsize, form.upstream_itemsize) / 64))


def busy(form: RowForm, columns: int, processors: int) -> float:
    """What it costs that some multiprocessors get no rows: clusters lie within one part of the device, and their number
    is a multiple of the period. The others have more of the memory's bandwidth then, so it is less than their share.
    """
    return math.sqrt(clusters(form, columns, processors) * form.slices / processors)


def clusters(form: RowForm, columns: int, processors: int) -> int:
    """How many the device should have room for at a time, of one block for each of a row's slices."""
    period = form.period(columns)
    return placed(form.slices, processors) // form.slices // period * period


def placed(slices: int, processors: int) -> int:
    """How many multiprocessors clusters of so many blocks find room on."""
    return int(processors * _PLACED[slices])
