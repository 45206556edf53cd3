"""Chooses configs of non-persistent blocks, that end after their first rows, by a cost model.

Such blocks load their rows at once, and scale and bias right after them. The device's
block scheduler keeps accesses close together in memory, better than persistent blocks that drift apart. Where rows are
few and wide, the blocks of a cluster share each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.layer_norm.cuda.forward.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.times import blocks_of, is_small, non_persistent_time
from gradkern.ops.layer_norm.cuda.row_tiling import REGISTERS, lanes_for, placed, sliced

__all__ = ["choose_non_persistent"]

_MOST_THREADS = 2048
_MOST_LANES = 1024
_MOST_COLUMNS = 13_000  # of large arrays
# of these, with a mean and one input of 2-byte elements: for eight wider shapes a ring was faster
_MOST_COMPUTED = 2048
_VALUES = {2: (8, 16, 24, 32, 48), 4: (4, 8, 16, 24, 32), 8: (2, 4, 8, 12, 16, 24, 32)}  # a thread, by the widest type
_VALUES_OF_LARGE = {2: (8, 16, 24, 32, 48), 4: (4, 6, 8, 12, 16, 24, 32), 8: (4, 6, 8, 10, 12, 16, 20, 24)}
_BLOCKS_PER_ROW = (1, 2, 4, 8, 16)
_LEAST_SLICE = 1500  # bytes of a row
_MOST_ROWS_OF_16 = 4  # in clusters of 16 blocks: only 7 of them are resident
_THREADS = (1, 128, 256)  # of a block, at least, where multiprocessors have several
_THREADS_OF_LARGE = (64, 128, 256, 512)
_MOST_BLOCKS = 16  # of a multiprocessor, where arrays are small


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
    for chosen in _with_columns(config, columns, blocks_per_row, _VALUES):
        threads = _THREADS if chosen.blocks_per_row == 1 else (1,)
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
    for (part, slice_columns), values in product(sliced(config, columns, choices, _LEAST_SLICE), values_of[widest]):
        lanes = lanes_for(slice_columns, values)
        if values % config.width or lanes > _MOST_LANES or (part.blocks_per_row > 1 and lanes < 32):
            continue
        spills = (lanes <= 32 and values * widest > 128) or (values > 32 and (lanes < 32 or config.width == 1))
        if not spills:
            yield replace(part, lanes=lanes, vectors=values // config.width)


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
    registers = _registers(config) + more_registers
    at_once = max(1, 128 // config.threads)
    held = round_up(at_once * config.threads, 128)
    return at_once * min(_MOST_THREADS // held, REGISTERS // (held * registers)) if registers < 256 else 0


def _registers(config: NormForwardConfig) -> int:
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
