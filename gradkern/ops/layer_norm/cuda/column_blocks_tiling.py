"""Whether separate blocks should compute scale_grad and bias_grad, and how columns are then assigned to threads.

The cost model was fitted to times of 770 configs of 150 random gradients of 1 to 40 MB on an H200 with a cold L2,
starting from a fit to 1000 configs of 57 other shapes. For arrays left out of the fit the choice took 2.0 % longer than
the best timed config on average; its predicted time was 6 % off, and that of blocks with both rows and sums
(`_time_together`) 4 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.layer_norm.cuda.config import ROWS_IN_FLIGHT, LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_tiling import REGISTERS, assigned, placed, uncoalesced

# Bytes of an array, at most, so that the L2 cache still holds it when it is read again. Devices without clusters were
# not measured; some have 4 MB of L2 cache.
_MOST_BYTES, _MOST_BYTES_BEFORE = 12 << 20, 1 << 20
_MOST_THREADS = 2048
_VALUES = {2: (8, 16, 24), 4: (4, 8, 16), 8: (2, 4, 8)}  # of a row in a thread, by the bytes of the widest element
_BLOCKS_PER_ROW = (1, 2, 4, 8)
_LEAST_SLICE = 2048  # bytes of a row
_THREADS = (256, 512)  # of a block, at most
_REDUCTION_LANES = (2, 4, 8, 16, 32, 64, 128, 256)
_MOST_ROUNDS = 4  # of rows, at most, where a row of columns takes more than a warp
_REDUCTION_CLUSTER_SIZES = (1, 2, 4, 8)
_SAFE = 0.97  # of the time of blocks with both, at most


def with_column_blocks(config: LayerNormConfig, columns: int, rows: int, processors: int) -> LayerNormConfig | None:
    """`config` with separate column-reduction blocks, or None where these are not faster. Width, types and source are
    given; a source of "bulk" implies that the device has clusters.
    """
    if rows * columns * config.data_itemsize > (_MOST_BYTES if config.source == "bulk" else _MOST_BYTES_BEFORE):
        return None
    every = ((_time(each, columns, rows, processors), each) for each in _candidates(config, columns, rows))
    time, chosen = min(every, key=lambda each: each[0], default=(math.inf, config))
    return chosen if time < _SAFE * _time_together(config, columns, rows) else None


def _candidates(config: LayerNormConfig, columns: int, rows: int) -> Iterator[LayerNormConfig]:
    in_clusters = config.source == "bulk"
    for rows_of, reduction_lanes in product(_with_rows(config, columns), _REDUCTION_LANES):
        candidate = replace(rows_of, reduction_lanes=reduction_lanes)
        at_once = candidate.reduction_rows
        if reduction_lanes > 32 and (candidate.threads % reduction_lanes or rows > _MOST_ROUNDS * at_once):
            continue
        for blocks in _REDUCTION_CLUSTER_SIZES if in_clusters and candidate.blocks_per_row == 1 else (1,):
            if blocks == 1 or rows > blocks // 2 * at_once:  # half as many blocks would need several rounds
                yield replace(candidate, reduction_cluster_size=blocks)


def _with_rows(config: LayerNormConfig, columns: int) -> Iterator[LayerNormConfig]:
    """The assignments of a row's columns to threads, for blocks with rows."""
    widest = config.widest
    reduction_vectors = max(1, 8 // (config.width * widest))  # a thread has several single narrow elements
    choices = _BLOCKS_PER_ROW if config.source == "bulk" else (1,)
    config = replace(config, source="plain")
    for part in assigned(config, columns, choices, _VALUES[widest], max(_THREADS), _LEAST_SLICE, whole=128):
        for threads in _THREADS:
            groups = threads // part.group_threads if part.blocks_per_row == 1 else int(part.lanes <= threads)
            if not groups:
                continue
            chosen = replace(
                part,
                groups_per_block=groups,
                stages=2,
                packed=config.packed or part.lanes >= 32,  # irrelevant for a single row
                reduction_vectors=reduction_vectors,
            )
            chosen = replace(chosen, unpredicated_vectors=chosen.fewest_vectors(columns))
            chosen = replace(chosen, blocks_per_processor=min(4, _resident(chosen)))
            if chosen.blocks_per_processor:
                yield chosen


def _time(config: LayerNormConfig, columns: int, rows: int, processors: int) -> float:
    """Microseconds: of the blocks, the launch and the memory."""
    rounds = -(-rows // (config.reduction_rows * config.reduction_cluster_size))
    narrow = uncoalesced(config.reduction_lanes, config.width * config.data_itemsize)
    kilobytes = config.threads * config.per_thread * config.data_itemsize / 1024
    row_block = 0.93 + 1.48 * config.cluster + 0.57 * (not config.scale_in_registers)
    row_block += 0.022 * kilobytes + 0.068 * config.vectors
    if config.vectors > 1:  # else neighbouring rows make up for it
        access = config.width * min(config.data_itemsize, config.upstream_itemsize)
        row_block *= math.sqrt(1 + uncoalesced(config.lanes, access))
    column_block = 2.33 + 0.337 * rounds * (1 + 0.26 * narrow) * (config.threads / 256) ** 0.51
    row_blocks = -(-rows // config.block_rows) * config.blocks_per_row
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
    loads = config.reduction_vectors * max(1, config.width * config.data_itemsize // 4)
    loads += config.reduction_vectors * max(1, config.width * config.upstream_itemsize // 4)
    of_columns = ROWS_IN_FLIGHT * (loads + 2 * words) + 3 * config.reduction_vectors * config.width * words + 40
    registers = round_up(max(of_rows, of_columns), 8)
    return min(REGISTERS // (round_up(config.threads, 128) * registers), _MOST_THREADS // config.threads)
