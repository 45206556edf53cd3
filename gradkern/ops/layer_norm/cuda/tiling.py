"""Chooses a LayerNormConfig for a shape, types and a device: how columns are assigned to threads.

A cost model of persistent blocks compares all assignments. The limits below were measured on an H200 with a cold L2: at
most 512 threads on a multiprocessor, at most 110 KB of rows in flight, and three rows of a group. With more, some
multiprocessors run ahead of others, and all wait for the slowest at the end.

The model was fitted to times with a cold L2. Up to 17 configs of each of 425 random gradients of 8 to 600 MB were timed
on an H200, 6,400 in all. For shapes left out of the fit the model's choice took 1.3 % longer than the fastest on
average, 12 % at most.

Rows of an odd number of 16-bit columns, as single elements or as aligned vectors, are bound by instructions, not by
memory. 352 configs of 75 such shapes (89 to 65,441 columns) were timed. For the 31 shapes whose promising
configs were timed, the model's choice, fitted without them, took 2.3 % longer than the fastest on average, 13 % at
most. Without the term for instructions it took 5.4 % longer, 29 % at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log2

from gradkern.cuda.device_code.columns import last_step, round_up
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_tiling import REGISTERS, SMALL, assigned, clusters, uncoalesced

_MOST_THREADS = 512  # that have rows
_IN_FLIGHT = 110 * 1024  # bytes of rows on their way to a multiprocessor
_VALUES = {2: (8, 12, 16, 24), 4: (4, 6, 8, 10, 12, 14, 16, 24), 8: (4, 8, 12)}  # a thread, by the widest type
_SINGLE = (8, 9, 12, 16)  # the same where an access is of one element of 2 bytes
_MOST_IDLE = 1.54  # columns that threads have room for over columns of a row: more only if nothing else fits
_ALONE = (224, 256)  # lanes of a single group that is better halved: see _with_fewer_warps
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
    cuts = [each for each in _CUT if each <= max_cluster_size] if config.source == "bulk" else [1]
    every = [
        each
        for given in (*([aligned_config] if aligned_config else ()), config)
        for each in _with_columns(given, columns, processors, shared_bytes, cuts)
    ]
    full = [each for each in every if each.blocks_per_row * each.most_columns <= _MOST_IDLE * columns]
    grouped = [
        _with_fewer_warps(replace(each, groups_per_block=_most_groups(each, shared_bytes)), columns)
        for each in full or every
    ]
    for best in sorted(grouped, key=lambda each: _persistent_loss(each, columns, rows, processors)):
        chosen = _finished(best, columns, processors, shared_bytes)
        if chosen.shared_bytes <= shared_bytes:
            return chosen
    return _finished(_very_wide(config, columns, shared_bytes, cuts[-1]), columns, processors, shared_bytes)


def _with_columns(
    config: LayerNormConfig, columns: int, processors: int, shared_bytes: int, cuts: Sequence[int]
) -> Iterator[LayerNormConfig]:
    """The assignments of columns to threads that fit registers and shared memory. cuts: numbers of blocks of a row."""
    registers = config.itemsize // 4  # of one value
    in_clusters = config.source == "bulk"
    numbers = _SINGLE if config.width == 1 and config.widest == 2 else _VALUES[config.widest]
    for chosen in assigned(config, columns, cuts, numbers, _MOST_THREADS):
        if chosen.lanes > 384 and registers == 2:
            chosen = replace(chosen, lanes=round_up(chosen.lanes, 64))  # 416 lanes spill registers
        if _spills(chosen):
            continue
        # without clusters the alternative is to read all rows twice
        few_values = not in_clusters and chosen.per_thread * registers * (3 + chosen.sums) <= 128
        if not few_values and not _has_registers(chosen, shared_bytes):
            continue
        if in_clusters and replace(chosen, stages=2).shared_bytes > shared_bytes:
            continue
        if clusters(chosen, columns, processors) and chosen.blocks_together(columns) <= _MOST_IN_TUPLE:
            yield chosen


def _spills(config: LayerNormConfig) -> bool:
    """Configs that spill registers although `_registers` estimates that they fit: aligned vectors in clusters, single
    elements of the invertible norm (1.6 times as long where it was timed), and clusters of the largest blocks that also
    write branch_grad.
    """
    in_clusters, lanes, values = config.blocks_per_row > 1, config.lanes, config.per_thread
    largest = config.branch != "" and config.centred and in_clusters and lanes > 384 and values >= 16
    single = config.invertible and config.width == 1 and lanes <= (32 if config.widest == 2 else 16)
    return (values > 16 and config.aligned_vectors and in_clusters) or (values > 12 and single) or largest


def _very_wide(config: LayerNormConfig, columns: int, shared_bytes: int, cluster: int) -> LayerNormConfig:
    """Configs for rows too wide for the registers of a cluster."""
    registers = config.itemsize // 4
    if cluster > 1:  # the ring is read twice
        chosen = replace(config, blocks_per_row=cluster, lanes=512, row_in_registers=False)
        chosen = replace(chosen, vectors=-(-chosen.slice_columns(columns) // (config.width * 512)))
        # Sums may take 32 of a thread's 128 registers; or 64 if rows lie in a ring, in vectors of 8, so that all else
        # needs few, and X_grad is requested: without it the two launches below become one that reads rows once, too.
        roomy = config.width == 8 and replace(chosen, stages=2).shared_bytes <= shared_bytes and config.has_second_pass
        if chosen.per_thread * registers * config.sums <= (64 if roomy else 32):
            return chosen
    most = max(
        1, 16 // registers // config.width
    )  # any number of columns: two launches, and blocks of a row are independent
    blocks_per_row = -(-columns // (256 * most * config.width))
    phase = "apply" if blocks_per_row > 1 else config.phase
    chosen = replace(config, blocks_per_row=blocks_per_row, lanes=256, vectors=most, phase=phase)
    return replace(chosen, groups_per_block=_most_groups(chosen, shared_bytes))


def _most_groups(config: LayerNormConfig, shared_bytes: int) -> int:
    """The most groups that registers allow, at least one."""
    groups = _MOST_THREADS // config.group_threads
    while groups > 1 and not _has_registers(replace(config, groups_per_block=groups), shared_bytes):
        groups -= 1
    return max(1, groups)


def _finished(chosen: LayerNormConfig, columns: int, processors: int, shared_bytes: int) -> LayerNormConfig:
    """The config with its stages and final sums."""
    stage = chosen.groups_per_block * sum(chosen.slots)
    three = 3 * stage <= _IN_FLIGHT or not chosen.refills_early
    chosen = replace(
        chosen,
        stages=3 if three and not (chosen.invertible and chosen.group_threads == 32) else 2,
        single_block=chosen.phase == "apply" and 2 * chosen.blocks_per_row > processors,
        packed=chosen.packed or chosen.group_rows == 1,  # irrelevant for a single row
    )
    chosen = _with_last_step(replace(chosen, unpredicated_vectors=chosen.fewest_vectors(columns)), processors)
    while chosen.shared_bytes > shared_bytes and chosen.stages > 2:
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
    blocks = round(132 * 2.0 ** round(log2(processors / 132)))
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


def _registers(config: LayerNormConfig, small: bool) -> int:
    """Registers of a thread, so that none spills: sums, a row's values and scales, and others. The others are more
    where a row has more than two warps or a warp has several rows, and still more for small devices. The compiler needs
    fewer where vectors are aligned to rows and vectors and sums are few.
    """
    each = config.sums + (2 if config.row_in_registers else 0) + (1 if config.scale_in_registers else 0)
    branch = config.branch != "" and (config.blocks_per_row > 1 or config.lanes > 320)
    rest = 76 if config.itemsize == 8 and config.per_thread >= 12 else 60
    if config.scale_in_registers:
        rest = 36 if 32 <= config.lanes <= 64 else 52 if small else 44
        small_sums = config.per_thread <= 16 and config.sums < 3
        if config.phase == "fused" and not config.aligned_vectors and small_sums and not branch:
            rest -= 16
    added = config.needs_added and config.upstream_itemsize < config.data_itemsize
    rest += 8 if ("X_grad_sum" in config.outputs or added) and config.phase == "apply" else 0
    rest += 8 if branch else 0
    return round_up(max(config.per_thread * (config.itemsize // 4) * each + rest, 64), 8)


def _has_registers(config: LayerNormConfig, shared_bytes: int) -> bool:
    """Registers are allocated in units of four warps. Configs that spilled took up to 1.5 times as long."""
    return round_up(config.threads, 128) * _registers(config, shared_bytes < SMALL) <= REGISTERS


# logarithm of the relative cost of several blocks per row
_CUT = {1: 0.0, 2: 0.0175, 3: 0.0164, 4: 0.0104, 6: 0.0252, 8: 0.0, 16: 0.0123}


# microseconds of a multiprocessor, by operator: for each row of a group of warps, whatever its width, and for 1024
# elements, by the width of a thread's accesses
_ROW = {"layer": 0.458, "simplified": 0.457, "invertible": 0.523}
_ELEMENTS = {
    "layer": {1: 0.132, 8: 0.123},
    "simplified": {1: 0.119, 8: 0.102},
    "invertible": {1: 0.146, 8: 0.122},
}
_SINGLE_IN_CLUSTERS = 0.071  # added for each row of single elements and each doubling of its blocks
# added for 1024 elements where the threads of a row together write half a sector of 32 bytes
_PARTS_OF_SECTORS = {"layer": 0.13, "simplified": 0.13, "invertible": 0.068}
_BYTES = 31400  # of memory bandwidth for each multiprocessor, per microsecond
_AROUND = 6  # microseconds of a launch besides its rows


def _persistent_loss(config: LayerNormConfig, columns: int, rows: int, processors: int) -> float:
    """Logarithm of a config's time over that of the memory traffic, less terms common to all configs of a shape."""
    narrow, load = config.widest == 2, config.width * min(config.data_itemsize, config.upstream_itemsize)
    access = min(load, config.width * config.result_itemsize)  # bytes of the narrowest load or store
    room = clusters(config, columns, processors)
    at_once = room * config.group_rows
    groups = min(config.groups_per_block, math.ceil(rows / at_once))  # with rows
    rounds, threads = rows / (at_once * groups), groups * config.group_threads
    values = config.per_thread * (config.itemsize // 4) / 16
    loss = (
        0.0729 * -math.log(room * config.blocks_per_row / processors)  # multiprocessors that have rows
        + 0.099 * min(1.0, math.ceil(rounds) / rounds - 1)
        + _CUT[config.blocks_per_row]
        - 0.0094 * math.log2(config.blocks_per_row) * min(1.0, 4 * processors / rows)
        + 0.0097
        * (config.groups_per_block == 1)
        * narrow  # a block with one group idles while its warps wait for each other
        + 0.0094 * max(0.0, math.log2(512 / threads))
        + 0.064 * max(0.0, 1 - values)
        - 0.0326 * max(0.0, values - 1) * narrow
        + 0.0069 * config.vectors / 8
        + 0.05 * (config.blocks_per_row * config.most_columns / columns - 1)
        + 0.021 * uncoalesced(config.lanes, load)
    )
    if not narrow or not (config.aligned_vectors or config.width == 1):
        return loss + 0.0512 * (access == 2) + 0.0377 * config.aligned_vectors
    moved = rows * columns * (config.data_itemsize + config.upstream_itemsize + config.result_itemsize)
    memory = moved / (processors * _BYTES)
    operator = "invertible" if config.invertible else "layer" if config.centred else "simplified"
    row = _ROW[operator] + _SINGLE_IN_CLUSTERS * math.log2(config.blocks_per_row) * (config.width == 1)
    element = _ELEMENTS[operator][config.width] + _PARTS_OF_SECTORS[operator] * (config.lanes == 8)
    elements = element * threads * config.per_thread / 1024
    instructions = _AROUND + rounds * (row + elements)
    return math.log(_greater(_AROUND + memory * math.exp(loss), instructions) / memory)


def _greater(one: float, other: float) -> float:
    """A smooth maximum: two times overlap, except where they are nearly equal."""
    return (one**8 + other**8) ** 0.125
