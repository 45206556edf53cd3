"""What the tilings of the layer norms and of their gradients weigh alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradkern.ops.layer_norm.cuda.row_form import RowForm

__all__ = ["LEAST_SLICE", "busy", "vectors"]

LEAST_SLICE = 4096  # bytes of a row: of less, blocks of a cluster wait for each other longer than they work
_HALVES = 0.97  # the worth of vectors half as wide as alignment allows, which may waste fewer lanes
_SINGLE = {8: 0.9, 9: 0.96, 12: 1.0, 16: 1.0}  # of values a thread, where an access is of one element of 2 bytes


def vectors(form: RowForm, widest: int, worth: Mapping[int, float]) -> Iterator[tuple[int, int, float]]:
    """Widths of vectors, and how many values a thread may have of a row then, with what that is worth.

    widest: bytes of the widest element; worth: of values a thread.
    """
    halves = form.width // 2 if form.width * widest == 16 and form.width > 1 and not form.by_units else 0
    for width, share in ((form.width, 1.0), (halves, _HALVES)):
        for values, each in (_SINGLE if width == 1 and widest == 2 else worth).items():
            if width and values % width == 0:
                yield width, values, each * share


def busy(form: RowForm, columns: int, processors: int) -> float:
    """Which part of the clusters that a device has at a time takes rows: they are a multiple of the period."""
    clusters = (processors if form.slices < 4 else processors * 10 // 11) // form.slices
    period = form.period(columns)
    return clusters // period * period / max(clusters, 1)
