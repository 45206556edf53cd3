"""Chooses a LayerNormConfig for a shape, types and a device: how columns are assigned to threads.

A cost model (`times`) compares all assignments. The limits below were measured on an H200 with a cold L2: at most 512
threads on a multiprocessor, at most 110 KB of rows in flight, and three rows of a group. With more, some
multiprocessors run ahead of others, and all wait for the slowest at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log2

from gradkern.cuda.device_code.columns import last_step, round_up
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_tiling import (
    REGISTERS,
    SMALL,
    clusters,
    lanes_for,
    sliced,
)
from gradkern.ops.layer_norm.cuda.times import CUT, persistent_loss

_MOST_THREADS = 512  # that have rows
_IN_FLIGHT = 110 * 1024  # bytes of rows on their way to a multiprocessor
_VALUES = {2: (8, 12, 16, 24), 4: (4, 6, 8, 10, 12, 14, 16, 24), 8: (4, 8, 12)}  # a thread, by the widest type
_SINGLE = (8, 9, 12, 16)  # the same where an access is of one element of 2 bytes
_MOST_IDLE = 1.54  # columns that threads have room for over columns of a row: more only if nothing else fits
_ALONE = (224, 256)  # lanes of a single group that is better halved: see _with_fewer_warps
_RESERVED = 1024  # bytes of shared memory that a block takes besides its own
_MANY_GROUPS = 8
# blocks of a tuple, one for each part of a row and each shift: larger tuples leave too many blocks idle
_MOST_IN_TUPLE = 48


def choose(
    config: LayerNormConfig,
    columns: int,
    rows: int,
    processors: int,
    shared_bytes: int,
    aligned_config: LayerNormConfig | None = None,
    max_cluster_size: int = 16,
) -> LayerNormConfig:
    """`config` with its threads, blocks per row, stages and final sums; width, types and source are given.
    aligned_config: the same with aligned vectors, where these are possible.
    """
    cuts = [each for each in CUT if each <= max_cluster_size] if config.source == "bulk" else [1]
    every = [
        each
        for given in (*([aligned_config] if aligned_config else ()), config)
        for each in _with_columns(given, columns, processors, shared_bytes, cuts)
    ]
    full = [each for each in every if each.blocks_per_row * each.most_columns <= _MOST_IDLE * columns]
    grouped = [_with_groups(each, columns, shared_bytes) for each in full or every]
    for best in sorted(grouped, key=lambda each: persistent_loss(each, columns, rows, processors)):
        chosen = _finished(best, columns, processors, shared_bytes)
        if chosen.shared_bytes <= _of_a_block(chosen, shared_bytes):
            return chosen
    return _finished(_very_wide(config, columns, shared_bytes, cuts[-1]), columns, processors, shared_bytes)


def _with_columns(
    config: LayerNormConfig, columns: int, processors: int, shared_bytes: int, cuts: Sequence[int]
) -> Iterator[LayerNormConfig]:
    """The assignments of columns to threads that fit registers and shared memory. cuts: numbers of blocks of a row."""
    registers = config.itemsize // 4  # of one value
    in_clusters = config.source == "bulk"
    for part, slice_columns in sliced(config, columns, cuts):
        blocks_per_row = part.blocks_per_row
        for values in _SINGLE if config.width == 1 and config.widest == 2 else _VALUES[config.widest]:
            lanes = lanes_for(slice_columns, values, parts_of_warps=not config.aligned_vectors)
            lanes = round_up(lanes, 64) if lanes > 384 and registers == 2 else lanes  # 416 lanes spill registers
            if lanes > _MOST_THREADS or values % config.width or _spills(config, blocks_per_row, lanes, values):
                continue
            chosen = replace(part, lanes=lanes, vectors=values // config.width)
            # without clusters the alternative is to read all rows twice
            few_values = not in_clusters and chosen.per_thread * registers * (3 + chosen.sums) <= 128
            if not few_values and not _has_registers(chosen, shared_bytes):
                continue
            if in_clusters and replace(chosen, stages=2).shared_bytes > shared_bytes:
                continue
            if clusters(chosen, columns, processors) and chosen.blocks_together(columns) <= _MOST_IN_TUPLE:
                yield chosen


def _spills(config: LayerNormConfig, blocks_per_row: int, lanes: int, values: int) -> bool:
    """Configs that spill registers although `_registers` estimates that they fit: aligned vectors in clusters, single
    elements of the invertible norm (1.6 times as long where it was timed), and clusters of the largest blocks that also
    write branch_grad.
    """
    largest = config.branch != "" and config.centred and blocks_per_row > 1 and lanes > 384 and values >= 16
    single = config.invertible and config.width == 1 and lanes <= (32 if config.widest == 2 else 16)
    return (values > 16 and config.aligned_vectors and blocks_per_row > 1) or (values > 12 and single) or largest


def _very_wide(config: LayerNormConfig, columns: int, shared_bytes: int, cluster: int) -> LayerNormConfig:
    """Configs for rows too wide for the registers of a cluster."""
    registers = config.itemsize // 4
    if cluster > 1:  # the ring is read twice
        chosen = replace(config, blocks_per_row=cluster, lanes=512, row_in_registers=False)
        chosen = replace(chosen, vectors=-(-chosen.slice_columns(columns) // (config.width * 512)))
        # Sums may take 32 of a thread's 128 registers; or 64 if rows lie in a ring, in vectors of 8, so that all else
        # needs few, and X_grad is requested: without it the two launches below become one that reads rows once, too.
        roomy = config.width == 8 and replace(chosen, stages=2).shared_bytes <= shared_bytes and config.makes_X_grad
        if chosen.per_thread * registers * config.sums <= (64 if roomy else 32):
            return chosen
    most = max(
        1, 16 // registers // config.width
    )  # any number of columns: two launches, and blocks of a row are independent
    blocks_per_row = -(-columns // (256 * most * config.width))
    phase = "apply" if blocks_per_row > 1 else config.phase
    chosen = replace(config, blocks_per_row=blocks_per_row, lanes=256, vectors=most, phase=phase)
    return replace(chosen, groups_per_block=_most_groups(chosen, shared_bytes))


def _with_groups(config: LayerNormConfig, columns: int, shared_bytes: int) -> LayerNormConfig:
    """As many groups as registers allow, minus one where they are many: 103 configs of random gradients took 0.99 of
    the time (0.95 to 1.05) on an H200. Or two blocks on a multiprocessor with half the groups each, if both have
    several groups or elements have more than 2 bytes: 94 configs took 0.984 (0.87 to 1.03).
    """
    most = _most_groups(config, shared_bytes)
    chosen = replace(config, groups_per_block=most - (most >= _MANY_GROUPS))
    two = replace(config, blocks_per_processor=2)
    if 2 * config.group_threads <= _MOST_THREADS and _has_registers(two, shared_bytes):
        half = _most_groups(two, shared_bytes)
        if 2 * half >= chosen.groups_per_block and (half > 1 or config.widest > 2):
            chosen = replace(two, groups_per_block=half)
    return _with_fewer_warps(chosen, columns)


def _most_groups(config: LayerNormConfig, shared_bytes: int) -> int:
    """The most groups that registers allow, at least one."""
    groups = _MOST_THREADS // (config.group_threads * config.blocks_per_processor)
    while groups > 1 and not _has_registers(replace(config, groups_per_block=groups), shared_bytes):
        groups -= 1
    return max(1, groups)


def _finished(chosen: LayerNormConfig, columns: int, processors: int, shared_bytes: int) -> LayerNormConfig:
    """The config with its stages and final sums."""
    stage = chosen.groups_per_block * chosen.blocks_per_processor * sum(chosen.slots)
    three = 3 * stage <= _IN_FLIGHT or not chosen.refills_early
    chosen = replace(
        chosen,
        stages=3 if three and not (chosen.invertible and chosen.group_threads == 32) else 2,
        single_block=chosen.phase == "apply" and 2 * chosen.blocks_per_row > processors,
        packed=chosen.packed or chosen.group_rows == 1,  # irrelevant for a single row
    )
    chosen = _with_last_step(replace(chosen, unpredicated_vectors=chosen.fewest_vectors(columns)), processors)
    while chosen.shared_bytes > _of_a_block(chosen, shared_bytes) and chosen.stages > 2:
        chosen = replace(chosen, stages=chosen.stages - 1)
    while chosen.shared_bytes > shared_bytes and chosen.groups_per_block > 1:
        chosen = _with_last_step(replace(chosen, groups_per_block=chosen.groups_per_block // 2), processors)
    if chosen.shared_bytes > shared_bytes:
        chosen = replace(chosen, source="plain")
    return chosen


def _with_last_step(config: LayerNormConfig, processors: int) -> LayerNormConfig:
    """With the last step of its sums, chosen for 132, 66 or 264 multiprocessors: boards of one architecture share
    kernels.
    """
    blocks = round(132 * 2.0 ** round(log2(processors / 132))) * config.blocks_per_processor
    results = config.sums * config.blocks_per_row * config.most_columns
    chunk, rows_in_flight = last_step(results, -(-blocks // config.blocks_per_row), config.threads, blocks)
    return replace(config, chunk=chunk, rows_in_flight=rows_in_flight)


def _with_fewer_warps(config: LayerNormConfig, columns: int) -> LayerNormConfig:
    """Twice the values of 2 bytes a thread where a block has one group: its warps wait less for each other. 17 random
    gradients of 20 to 800 MB took 0.955 of the time in the median on an H200 (0.905 to 1.026), 16 on an H100 0.976.
    There is no gain without a mean, and a loss with fewer lanes, and in float64, where registers spill.
    """
    alone = (
        config.groups_per_block == 1
        and config.blocks_per_row > 1
        and config.phase == "fused"
        and config.row_in_registers
    )
    if not alone or config.widest > 2 or config.per_thread != 16 or not config.centred or config.sums != 2:
        return config
    lanes = round_up(-(-config.slice_columns(columns) // 32), 32)
    return replace(config, lanes=lanes, vectors=32 // config.width) if lanes in _ALONE else config


def _of_a_block(config: LayerNormConfig, shared_bytes: int) -> int:
    """Shared memory of a block, if a multiprocessor has several."""
    return (shared_bytes + _RESERVED) // config.blocks_per_processor - _RESERVED


def _registers(config: LayerNormConfig, small: bool) -> int:
    """Registers of a thread, so that none spills: sums, a row's values and scales, and others. The others are more
    where a row has more than two warps or a warp has several rows, and still more for small devices. The compiler needs
    fewer where vectors are aligned to rows and vectors and sums are few.
    """
    each = config.sums + (2 if config.row_in_registers else 0) + (1 if config.scale_in_registers else 0)
    rest = 76 if config.itemsize == 8 and config.per_thread >= 12 else 60
    if config.scale_in_registers:
        rest = 36 if 32 <= config.lanes <= 64 else 52 if small else 44
        if config.phase == "fused" and not config.aligned_vectors and config.per_thread <= 16 and config.sums < 3:
            rest -= 16
    added = config.needs_added and config.upstream_itemsize < config.data_itemsize
    rest += 8 if ("X_grad_sum" in config.outputs or added) and config.phase == "apply" else 0
    return round_up(max(config.per_thread * (config.itemsize // 4) * each + rest, 64), 8)


def _has_registers(config: LayerNormConfig, shared_bytes: int) -> bool:
    """Registers are allocated in units of four warps. Configs that spilled took up to 1.5 times as long."""
    threads = round_up(config.threads * config.blocks_per_processor, 128)
    return threads * _registers(config, shared_bytes < SMALL) <= REGISTERS
