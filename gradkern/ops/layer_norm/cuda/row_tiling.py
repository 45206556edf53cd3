"""Shared by the choice of configs of the layer norms and of their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.layer_norm.cuda.row_config import RowConfig

Config = TypeVar("Config", bound=RowConfig)

REGISTERS = 65536  # of a multiprocessor
SMALL = 128 * 1024  # bytes of shared memory; assemblers for devices with less take a few registers more
_LEAST_SLICE = 4096  # bytes of a row in one block: with less, blocks of a cluster mostly wait for each other
# share of an H200's multiprocessors that can be occupied by clusters of this many blocks
_PLACED = {1: 1.0, 2: 1.0, 3: 0.89, 4: 0.91, 6: 0.78, 8: 0.91, 16: 0.85}


def assigned(
    config: Config,
    columns: int,
    cuts: Iterable[int],
    numbers: Sequence[int],
    most_lanes: int,
    least: int = _LEAST_SLICE,
    whole: int = 32,
) -> Iterator[Config]:
    """The assignments of a row's columns to threads: `config` with as many blocks per row as `cuts` allow, each with
    columns and at least `least` bytes of them, and so many lanes that a thread has one of these numbers of values.

    Lanes are whole warps, of a row of several blocks a multiple of `whole`; or a power of two up to 16.
    """
    for blocks_per_row in cuts:
        part = replace(config, blocks_per_row=blocks_per_row)
        slice_columns = part.slice_columns(columns)
        others = slice_columns * (blocks_per_row - 1)
        if blocks_per_row > 1 and (others >= columns or slice_columns * config.widest < least):
            continue
        for values in numbers:
            lanes = -(-slice_columns // values)
            if lanes > 16 or config.aligned_vectors:
                lanes = round_up(lanes, whole if blocks_per_row > 1 else 32)
            else:
                lanes = 1 << (lanes - 1).bit_length()
            if lanes <= most_lanes and values % config.width == 0:
                yield replace(part, lanes=lanes, vectors=values // config.width)


def uncoalesced(lanes: int, access: int) -> float:
    """0 where the `lanes` neighbouring threads of a row, with accesses of `access` bytes each, cover at least 64
    contiguous bytes; else the bytes requested in vain for each byte used.
    """
    return max(0.0, 64 / (lanes * access) - 1)


def clusters(config: RowConfig, columns: int, processors: int) -> int:
    """Clusters of `config.blocks_per_row` blocks that should be resident on the device at a time."""
    period = config.period(columns)
    return placed(config.blocks_per_row, processors) // config.blocks_per_row // period * period


def placed(blocks_per_row: int, processors: int) -> int:
    """Multiprocessors that clusters of this many blocks can occupy."""
    return int(processors * _PLACED[blocks_per_row])
