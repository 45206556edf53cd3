"""The parts of the rows whose logits a linear cross entropy has in memory at a time."""

from __future__ import annotations

LEAST_ROWS = 1024
"""Of a part: with fewer, the products read W more often than they compute."""
_STEP = 128  # rows of a product's tile


def chunks(rows: int, row_bytes: int, most_bytes: int, sum_bytes: int = 0) -> list[tuple[int, int]]:
    """Begin and end of each part: as few and as equal as whole tiles allow. One part needs no sums of gradients over
    parts, and may have the memory of these, too.
    """
    if rows * row_bytes <= most_bytes + sum_bytes:
        return [(0, rows)]
    most = max(LEAST_ROWS, most_bytes // max(1, row_bytes))
    parts = -(-rows // most)
    each = -(-rows // parts) if parts else 0
    each = min(rows, -(-each // _STEP) * _STEP)
    return [(begin, min(begin + each, rows)) for begin in range(0, rows, each or 1)]


def padded(columns: int, itemsize: int) -> int:
    """Elements of whole lines of memory: from row to row of the logits. Of matrices whose rows are no whole vectors
    cuBLAS's products take six times as long.
    """
    line = 128 // itemsize
    return -(-columns // line) * line
