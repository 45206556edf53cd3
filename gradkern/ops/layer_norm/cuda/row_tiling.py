"""What the tilings of the layer norms and of their gradients weigh alike."""

from __future__ import annotations

from gradkern.ops.layer_norm.cuda.row_config import LINE, RowConfig

__all__ = ["LEAST_SLICE", "begins_within_lines", "clusters", "placed", "uncoalesced"]

LEAST_SLICE = 4096  # bytes of a row: of less, blocks of a cluster wait for each other longer than they work
# which share of an H200's multiprocessors has clusters of so many blocks
_PLACED = {1: 1.0, 2: 1.0, 3: 0.89, 4: 0.91, 6: 0.78, 8: 0.91, 16: 0.85}


def begins_within_lines(config: RowConfig, columns: int) -> bool:
    """`config.by_lines`, once it is known how many rows a group takes at once: end to end they may all begin with a
    line, and apart they have places of their own.
    """
    if config.group_rows == 1 or not config.by_lines:
        return config.by_lines
    sizes = (config.data_itemsize, config.upstream_itemsize)
    return config.packed and any(config.group_rows * columns * each % LINE for each in sizes)


def uncoalesced(lanes: int, access: int) -> float:
    """0 where neighbouring threads, so many of a row, take 64 bytes of it at a time, of `access` bytes each; else how
    much more of it than they take is asked for.
    """
    return max(0.0, 64 / (lanes * access) - 1)


def clusters(config: RowConfig, columns: int, processors: int) -> int:
    """How many the device should have room for at a time, of one block for each of a row's slices."""
    period = config.period(columns)
    return placed(config.slices, processors) // config.slices // period * period


def placed(slices: int, processors: int) -> int:
    """How many multiprocessors clusters of so many blocks find room on."""
    return int(processors * _PLACED[slices])
