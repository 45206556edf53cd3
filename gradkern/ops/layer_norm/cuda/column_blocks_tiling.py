"""Whether blocks of their own should add up scale_grad and bias_grad, and which threads own which columns then.

The times are those of a model, fitted to 770 configs of 150 random gradients of 1 to 40 MB, each near the best before,
that were timed on an H200 with a cold L2, and kept near what 1000 configs of 57 other shapes had told. Of what was
timed, the choice for arrays left out of the fit took 2.0 % longer than the best on average; its time was 6 % off, and
that of blocks that have rows and sums (`_time_together`) 4 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.config import ROWS_AHEAD, LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_tiling import placed, uncoalesced

__all__ = ["with_column_blocks"]

# Bytes of an array: of more the L2 cache has not all when they are read again. Devices without clusters were not
# measured, and some have 4 MB of it.
_MOST_BYTES, _MOST_BYTES_BEFORE = 12 << 20, 1 << 20
_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 2048
_VALUES = {2: (8, 16, 24), 4: (4, 8, 16), 8: (2, 4, 8)}  # of a row a thread has, by the bytes of the widest element
_SLICES = (1, 2, 4, 8)
_LEAST_SLICE = 2048  # bytes of a row
_THREADS = (256, 512)  # of a block, at most
_STRIPE_LANES = (2, 4, 8, 16, 32, 64, 128, 256)
_MOST_ROUNDS = 4  # of more lanes than a warp has, which is for few rows
_STRIPE_BLOCKS = (1, 2, 4, 8)
_SAFE = 0.97  # of the time of blocks that have both


def with_column_blocks(config: LayerNormConfig, columns: int, rows: int, processors: int) -> LayerNormConfig | None:
    """`config` with all its numbers, if it is faster so; width and types are given, and the source of rows, which tells
    whether the device has clusters.
    """
    if rows * columns * config.data_itemsize > (_MOST_BYTES if config.source == "bulk" else _MOST_BYTES_BEFORE):
        return None
    every = ((_time(each, columns, rows, processors), each) for each in _candidates(config, columns, rows))
    time, chosen = min(every, key=lambda each: each[0], default=(math.inf, config))
    return chosen if time < _SAFE * _time_together(config, columns, rows) else None


def _candidates(config: LayerNormConfig, columns: int, rows: int) -> Iterator[LayerNormConfig]:
    in_clusters = config.source == "bulk"
    for rows_of, stripe_lanes in product(_with_rows(config, columns), _STRIPE_LANES):
        striped = replace(rows_of, stripe_lanes=stripe_lanes)
        at_once = striped.stripe_rows
        if stripe_lanes > 32 and (striped.threads % stripe_lanes or rows > _MOST_ROUNDS * at_once):
            continue
        for blocks in _STRIPE_BLOCKS if in_clusters and striped.slices == 1 else (1,):
            if blocks == 1 or rows > blocks // 2 * at_once:  # half as many would take several rounds
                yield replace(striped, stripe_blocks=blocks)


def _with_rows(config: LayerNormConfig, columns: int) -> Iterator[LayerNormConfig]:
    """The ways to give a row's columns to the threads of blocks that have rows."""
    widest = config.widest
    stripe_vectors = max(1, 8 // (config.width * widest))  # of single narrow elements a thread has several
    every_slices = _SLICES if config.source == "bulk" else (1,)
    config = replace(config, source="plain", by_lines=False)
    for slices in every_slices:
        slice_columns = replace(config, slices=slices).slice_columns(columns)
        if slices > 1 and (slice_columns * widest < _LEAST_SLICE or slice_columns * (slices - 1) >= columns):
            continue
        for values, threads in product(_VALUES[widest], _THREADS):
            lanes = -(-slice_columns // values)
            lanes = up(lanes, 32 if slices == 1 else 128) if lanes > 16 else 1 << (lanes - 1).bit_length()
            groups = threads // max(lanes, 32) if slices == 1 else int(lanes <= threads)
            if not groups:
                continue
            chosen = replace(
                config,
                slices=slices,
                lanes=lanes,
                vectors=values // config.width,
                warp_groups=groups,
                stages=2,
                packed=config.packed or lanes >= 32,  # which nobody asks about a single row
                stripe_vectors=stripe_vectors,
            )
            chosen = replace(chosen, certain_vectors=chosen.fewest_vectors(columns))
            chosen = replace(chosen, blocks_per_processor=min(4, _resident(chosen)))
            if chosen.blocks_per_processor:
                yield chosen


def _time(config: LayerNormConfig, columns: int, rows: int, processors: int) -> float:
    """Microseconds. What is not the blocks' is the launch, and the memory's."""
    rounds = -(-rows // (config.stripe_rows * config.stripe_blocks))
    narrow = uncoalesced(config.stripe_lanes, config.width * config.data_itemsize)
    kilobytes = config.threads * config.per_thread * config.data_itemsize / 1024
    row_block = 0.93 + 1.48 * config.cluster + 0.57 * (not config.scale_in_registers)
    row_block += 0.022 * kilobytes + 0.068 * config.vectors
    if config.vectors > 1:  # else neighbouring rows make up for it
        access = config.width * min(config.data_itemsize, config.upstream_itemsize)
        row_block *= math.sqrt(1 + uncoalesced(config.lanes, access))
    column_block = 2.33 + 0.337 * rounds * (1 + 0.26 * narrow) * (config.threads / 256) ** 0.51
    row_blocks = -(-rows // (config.warp_groups * config.group_rows)) * config.slices
    column_blocks = config.column_blocks(columns)
    resident = placed(config.launch_cluster, processors) * config.blocks_per_processor
    shared_out = (row_blocks * row_block + column_blocks * column_block) / resident
    in_waves = _in_waves(column_blocks, column_block, row_blocks, row_block, resident)
    all_blocks = 0.4 * in_waves + 0.6 * max(shared_out, row_block, column_block)
    memory = rows * columns * config.data_itemsize * 0.66e-6 + 0.23 * column_blocks / processors
    return 2.33 + all_blocks + memory + 0.29 * (config.launch_cluster > 1) + 0.56 * config.invertible


def _in_waves(column_blocks: int, column_block: float, row_blocks: int, row_block: float, resident: int) -> float:
    """Until the last block ends, of blocks that all take what their kind does: first come those with columns, and then
    those with rows, each as another ends.
    """
    if column_blocks + row_blocks <= resident:
        return max(column_block, row_block)
    waves = -(-column_blocks // resident)
    beside = (waves * resident - column_blocks) * int(column_block / row_block)
    return waves * column_block + -(-max(0, row_blocks - beside) // resident) * row_block


def _time_together(config: LayerNormConfig, columns: int, rows: int) -> float:
    """Microseconds that it takes where the blocks with the rows add up, too."""
    row = columns * config.data_itemsize
    of_operator = 0.91 if config.invertible else 0.0 if config.centred else -0.58
    of_row = (3.3 if config.width * config.data_itemsize == 2 else 2.1) * (row / 8192) ** 0.35
    return 6.18 + of_operator + of_row + 0.82 * min(1.0, rows / 2000) + 0.876e-6 * rows * row


def _resident(config: LayerNormConfig) -> int:
    """Blocks that have the registers that they need at the same time on a multiprocessor."""
    words = config.itemsize // 4
    of_rows = config.per_thread * words * (3 if config.scale_in_registers else 2) + (
        40 if config.scale_in_registers else 60
    )
    loads = config.stripe_vectors * max(1, config.width * config.data_itemsize // 4)
    loads += config.stripe_vectors * max(1, config.width * config.upstream_itemsize // 4)
    of_columns = ROWS_AHEAD * (loads + 2 * words) + 3 * config.stripe_vectors * config.width * words + 40
    registers = up(max(of_rows, of_columns), 8)
    return min(_REGISTERS // (up(config.threads, 128) * registers), _MOST_THREADS // config.threads)
