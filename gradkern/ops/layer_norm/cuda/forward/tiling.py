"""Chooses a NormForwardConfig for a shape, types and a device: how columns are assigned to threads.

A cost model (`times`) compares all assignments, of persistent blocks with a ring of prefetched rows, and of
non-persistent blocks that end after their first rows.

The latter load their rows at once, and scale and bias right after them. The device's block scheduler keeps accesses
close together in memory, better than persistent blocks that drift apart. Where rows are few and wide, the blocks of a
cluster share each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.layer_norm.cuda.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.times import (
    CUT,
    blocks_of,
    is_small,
    non_persistent_time,
    persistent_loss,
    persistent_time,
)
from gradkern.ops.layer_norm.cuda.row_tiling import REGISTERS, SMALL, assigned, clusters, placed

# of persistent blocks
_MOST_LANES = 512
_THREADS = (384, 512, 768)  # of a multiprocessor, about
_IN_FLIGHT, _MOST_IN_FLIGHT = 110 * 1024, 170 * 1024  # bytes of rows in flight on a multiprocessor
_MOST_STAGES = 6
_VALUES = {2: (8, 9, 12, 16, 24, 32), 4: (4, 8, 12, 16, 24, 32), 8: (4, 6, 8, 12, 16)}  # a thread, by the widest type
_MOST_IDLE = 1.85  # columns that threads have room for over columns of a row: more only if nothing else fits

# of non-persistent blocks
_MOST_THREADS = 2048
_MOST_NON_PERSISTENT_LANES = 1024
_MOST_COLUMNS = 13_000  # of large arrays
# of these, with a mean and one input of 2-byte elements: for eight wider shapes a ring was faster
_MOST_COMPUTED = 2048
_VALUES_OF_SMALL = {
    2: (8, 16, 24, 32, 48),
    4: (4, 8, 16, 24, 32),
    8: (2, 4, 8, 12, 16, 24, 32),
}  # a thread, by the widest type
_VALUES_OF_LARGE = {2: (8, 16, 24, 32, 48), 4: (4, 6, 8, 12, 16, 24, 32), 8: (4, 6, 8, 10, 12, 16, 20, 24)}
_BLOCKS_PER_ROW = (1, 2, 4, 8, 16)
_LEAST_SLICE = 1500  # bytes of a row
_MOST_ROWS_OF_16 = 4  # in clusters of 16 blocks: only 7 of them are resident
_THREADS_OF_SMALL = (1, 128, 256)  # of a block, at least, where multiprocessors have several
_THREADS_OF_LARGE = (64, 128, 256, 512)
_MOST_BLOCKS = 16  # of a multiprocessor, where arrays are small


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
    for chosen in assigned(config, columns, cuts, _VALUES[config.widest], _MOST_LANES):
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
    rest += 48 if config.vectors > 24 or (config.vectors == 24 and config.skips and config.centred) else 0
    rest += 4 * config.itemsize * config.skips + (24 if shared_bytes < SMALL else 0)
    return config.per_thread * (config.itemsize // 4) * each + rest


def choose_non_persistent(
    config: NormForwardConfig,
    columns: int,
    rows: int,
    processors: int,
    most_blocks_per_row: int = 16,
    more_registers: int = 0,
) -> tuple[float, NormForwardConfig] | None:
    """The best config of non-persistent blocks and its time in microseconds; None where these are not modelled. Width,
    types and source are given; a source of "bulk" implies that the device has clusters. more_registers: of a thread,
    that the device's assembler needs besides.
    """
    if config.source != "bulk" or config.shifted or config.aligned_vectors:
        return None
    config = replace(config, source="plain")
    if is_small(config, columns, rows, processors):
        if rows > _MOST_ROWS_OF_16:
            most_blocks_per_row = min(most_blocks_per_row, 8)
        blocks_per_row = [
            each for each in _BLOCKS_PER_ROW if each <= min(most_blocks_per_row, placed(each, processors))
        ]
        every = _candidates_of_small(config, columns, rows, processors, blocks_per_row, more_registers)
    else:
        every = _candidates_of_large(config, columns, more_registers)
    timed = ((non_persistent_time(each, columns, rows, processors), each) for each in every)
    return min(timed, key=lambda each: each[0], default=None)


def _candidates_of_small(
    config: NormForwardConfig,
    columns: int,
    rows: int,
    processors: int,
    blocks_per_row: Iterable[int],
    more_registers: int,
) -> Iterator[NormForwardConfig]:
    for chosen in _with_columns(config, columns, blocks_per_row, _VALUES_OF_SMALL):
        threads = _THREADS_OF_SMALL if chosen.blocks_per_row == 1 else (1,)
        for each in _with_rows(chosen, columns, threads, more_registers):
            if each.groups_per_block > 1 and (each.groups_per_block - 1) * each.group_rows >= rows:
                continue
            # a power of two: kernels serve more shapes
            wanted = 1 << (-(-blocks_of(each, rows) // processors) - 1).bit_length()
            yield replace(each, blocks_per_processor=min(each.blocks_per_processor, wanted, _MOST_BLOCKS))


def _candidates_of_large(config: NormForwardConfig, columns: int, more_registers: int) -> Iterator[NormForwardConfig]:
    widest = config.widest
    if columns > _MOST_COLUMNS or (widest == 2 and config.width == 1):
        return
    if widest == 2 and config.centred and not config.skips and columns > _MOST_COMPUTED:
        return
    for chosen in _with_columns(config, columns, (1,), _VALUES_OF_LARGE):
        yield from _with_rows(chosen, columns, _THREADS_OF_LARGE, more_registers)


def _with_columns(
    config: NormForwardConfig, columns: int, choices: Iterable[int], values_of: dict[int, tuple[int, ...]]
) -> Iterator[NormForwardConfig]:
    """The assignments of a row's columns to threads."""
    widest = config.widest
    for chosen in assigned(config, columns, choices, values_of[widest], _MOST_NON_PERSISTENT_LANES, _LEAST_SLICE):
        lanes, values = chosen.lanes, chosen.per_thread
        spills = (lanes <= 32 and values * widest > 128) or (values > 32 and (lanes < 32 or config.width == 1))
        if not spills and (chosen.blocks_per_row == 1 or lanes >= 32):
            yield chosen


def _with_rows(
    config: NormForwardConfig, columns: int, threads: Iterable[int], more_registers: int
) -> Iterator[NormForwardConfig]:
    """Blocks of about this many threads, at least one group; as many blocks as fit."""
    for groups in dict.fromkeys(max(1, each // config.group_threads) for each in threads):
        block = replace(
            config,
            groups_per_block=groups,
            stages=2,
            parameters="prefetched",
            packed=config.packed or config.group_rows == 1,  # irrelevant for a single row
            unpredicated_vectors=config.fewest_vectors(columns),
        )
        if most := _most_blocks(block, more_registers):
            yield replace(block, blocks_per_processor=most)


def _most_blocks(config: NormForwardConfig, more_registers: int) -> int:
    """Blocks of a multiprocessor, limited by registers (allocated for four warps at a time); 0: a thread needs too
    many.
    """
    registers = _non_persistent_registers(config) + more_registers
    at_once = max(1, 128 // config.threads)
    held = round_up(at_once * config.threads, 128)
    return at_once * min(_MOST_THREADS // held, REGISTERS // (held * registers)) if registers < 256 else 0


def _non_persistent_registers(config: NormForwardConfig) -> int:
    """Registers of a thread, so that none spills: a row's values, words loaded at the same time, and others."""
    words = config.itemsize // 4
    needed = config.per_thread * words
    if config.skips:
        needed += config.per_thread * config.data_itemsize // 4
    needed += config.parameter_words * (1 + config.biased)
    exchange = config.cluster or config.lanes > 32
    rest = 16 + 8 * words * (1 + (exchange or config.lanes < 32) + config.centred + config.cluster * config.centred)
    rest += 8 * (config.vectors > 8)
    if config.skips and config.lanes < 32:
        rest += 16 * words
    return round_up(needed + rest, 8)
