"""Chooses a NormForwardConfig for a shape, types and a device: how columns are assigned to threads.

A cost model (`times`) compares all assignments, of persistent blocks with a ring of prefetched rows, and of
non-persistent blocks that end after their first rows (`non_persistent_tiling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.layer_norm.cuda.forward.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.non_persistent_tiling import choose_non_persistent
from gradkern.ops.layer_norm.cuda.forward.times import CUT, is_small, persistent_loss, persistent_time
from gradkern.ops.layer_norm.cuda.row_tiling import (
    REGISTERS,
    SMALL,
    clusters,
    lanes_for,
    sliced,
)

__all__ = ["choose"]

_MOST_LANES = 512
_THREADS = (384, 512, 768)  # of a multiprocessor, about
_IN_FLIGHT, _MOST_IN_FLIGHT = 110 * 1024, 170 * 1024  # bytes of rows in flight on a multiprocessor
_MOST_STAGES = 6
_VALUES = {2: (8, 9, 12, 16, 24, 32), 4: (4, 8, 12, 16, 24, 32), 8: (4, 6, 8, 12, 16)}  # a thread, by the widest type
_MOST_IDLE = 1.85  # columns that threads have room for over columns of a row: more only if nothing else fits


def choose(
    config: NormForwardConfig,
    columns: int,
    rows: int,
    processors: int,
    shared_bytes: int,
    aligned_config: NormForwardConfig | None = None,
    most_blocks_per_row: int = 16,
    max_cluster_size: int = 16,
) -> NormForwardConfig:
    """`config` with its threads, blocks per row and stages; width, types and source are given.

    aligned_config: the same with aligned vectors, where these are possible; most_blocks_per_row: of non-persistent
    blocks.
    """
    more_registers = 4 * config.itemsize * (1 + config.centred) if shared_bytes < SMALL else 0
    most_blocks_per_row = min(most_blocks_per_row, max_cluster_size)
    timed = choose_non_persistent(config, columns, rows, processors, most_blocks_per_row, more_registers)
    ways = [config, *([aligned_config] if aligned_config else ())]
    cuts = [each for each in CUT if each <= max_cluster_size] if config.source == "bulk" else [1]
    persistent = _persistent(ways, columns, rows, processors, shared_bytes, cuts)
    if timed is None:
        return persistent
    time, non_persistent = timed
    # blocks of small arrays with a single row need no ring
    alone = is_small(config, columns, rows, processors) and rows <= 2 * processors and persistent.blocks_per_row == 1
    return non_persistent if alone or time < persistent_time(persistent, columns, rows, processors) else persistent


def _persistent(
    configs: list[NormForwardConfig],
    columns: int,
    rows: int,
    processors: int,
    shared_bytes: int,
    cuts: Sequence[int],
) -> NormForwardConfig:
    """The best config of persistent blocks."""
    every = [each for config in configs for each in _candidates(config, columns, rows, processors, shared_bytes, cuts)]
    full = [each for each in every if each.blocks_per_row * each.most_columns <= _MOST_IDLE * columns]
    if every:
        return min(full or every, key=lambda each: persistent_loss(each, columns, rows, processors))
    config = configs[0]  # any number of columns: two launches, and blocks of a row are independent
    most = max(1, 16 // (config.itemsize // 4) // config.width)
    blocks_per_row = -(-columns // (256 * most * config.width))
    config = replace(config, blocks_per_row=blocks_per_row, lanes=256, vectors=most, parameters="shared", phase="apply")
    several = [_with_stages(replace(config, groups_per_block=groups), columns, shared_bytes) for groups in (2, 1)]
    fits = [each for each in several if each.shared_bytes <= shared_bytes and each.threads * config.itemsize <= 2048]
    return (fits or several[-1:])[0]


def _candidates(
    config: NormForwardConfig, columns: int, rows: int, processors: int, shared_bytes: int, cuts: Sequence[int]
) -> Iterator[NormForwardConfig]:
    """The assignments of columns to threads that fit registers and shared memory. cuts: numbers of blocks of a row."""
    for part, slice_columns in sliced(config, columns, cuts):
        for values in _VALUES[config.widest]:
            lanes = lanes_for(slice_columns, values, parts_of_warps=not config.aligned_vectors)
            if lanes > _MOST_LANES or values % config.width:
                continue
            chosen = replace(part, lanes=lanes, vectors=values // config.width)
            if clusters(chosen, columns, processors):
                yield from _with_groups(chosen, columns, rows <= 2 * processors, shared_bytes)


def _with_groups(config: NormForwardConfig, columns: int, few: bool, shared_bytes: int) -> Iterator[NormForwardConfig]:
    """Blocks of one or several groups, with scale and bias in registers if these suffice."""
    computes_much = config.centred and config.widest == 2
    for groups in {max(1, threads // config.group_threads) for threads in _THREADS[computes_much:]}:
        if (few and groups > 4) or (groups > 15 and config.lanes > 32):  # a block has 15 named barriers
            continue
        for parameters in ("registers", "shared"):
            chosen = replace(config, groups_per_block=groups, parameters=parameters)
            if _registers(chosen, shared_bytes) <= min(255, REGISTERS // round_up(chosen.threads, 128)):
                made = _with_stages(chosen, columns, shared_bytes)
                if made.shared_bytes <= shared_bytes:
                    yield made
                break


def _with_stages(config: NormForwardConfig, columns: int, shared_bytes: int) -> NormForwardConfig:
    size = config.groups_per_block * sum(config.slots)
    config = replace(
        config,
        stages=max(min(3, _MOST_IN_FLIGHT // size), min(_MOST_STAGES, _IN_FLIGHT // size), 2),
        packed=config.packed or config.group_rows == 1,  # irrelevant for a single row
        unpredicated_vectors=config.fewest_vectors(columns),
    )
    while config.shared_bytes > shared_bytes and config.stages > 2:
        config = replace(config, stages=config.stages - 1)
    return config


def _registers(config: NormForwardConfig, shared_bytes: int) -> int:
    """Registers of a thread: a row's values, its parameters, and others."""
    each = 1 + config.shifted + (1 + config.biased if config.parameters == "registers" else 0)
    rest = 24 + 8 * config.itemsize
    if config.aligned_vectors:  # with masks
        rest = 76 if config.per_thread < 24 else 92 if config.per_thread < 32 else 116
        rest += (24 + 16 * config.skips) * config.centred if config.per_thread >= 24 else 0
    rest += 48 if config.vectors > 24 else 0
    rest += 4 * config.itemsize * config.skips + (24 if shared_bytes < SMALL else 0)
    return config.per_thread * (config.itemsize // 4) * each + rest
