"""Cost models of the layer norms' configs, in microseconds, fitted to times with a cold L2.

Small arrays are finished before a ring is full. Their time depends on how soon all rows are requested. The model of
non-persistent blocks was fitted to 2,600 configs of 205 such shapes (1 to 49,000 rows of 64 to 63,000 columns, every
type, 0.3 to 50 MB) on an H200. For shapes left out of the fit its choice took 1.8 % longer than the best on average, 17
% at most; predicted times are 4 % off. The model of persistent blocks for small arrays is older; it was 6 % off.

The time of larger arrays depends on the bytes of rows in flight on a multiprocessor, and on the length of rows. The
model of non-persistent blocks was fitted to 5,700 configs of 536 shapes of 50 to 800 MB on an H200. For shapes left out
of the fit the choice between these and a ring reaches 0.938 of torch.add's bandwidth in the mean, the best timed config
0.951; for 115 shapes on an H100, not in the fit, 0.965 and 0.975. The model of persistent blocks, for 225 shapes with
up to 16 configs each, reaches 0.876 of 0.891.
"""

from __future__ import annotations

import math

from gradkern.ops.layer_norm.cuda.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.row_tiling import clusters, placed, uncoalesced

# logarithm of the relative cost of several blocks per row, for persistent blocks
CUT = {1: 0.0, 2: 0.0428, 3: 0.0357, 4: 0.0357, 6: 0.027, 8: 0.0259, 16: 0.0378}

_BEGINNING = 12  # blocks that a multiprocessor can start in a microsecond, at most
_MOST_BYTES = 30_000_000  # read and written, of small arrays
_MOST_BYTES_OF_FEW = 50_000_000  # with at most two rows for a multiprocessor


def is_small(config: NormForwardConfig, columns: int, rows: int, processors: int) -> bool:
    """The memory transfers the arrays in a few microseconds."""
    most = _MOST_BYTES_OF_FEW if rows <= 2 * processors else _MOST_BYTES
    return rows * columns * config.moved_bytes <= most


def non_persistent_time(config: NormForwardConfig, columns: int, rows: int, processors: int) -> float:
    """Of non-persistent blocks, that end after their first rows."""
    if is_small(config, columns, rows, processors):
        return _small_non_persistent_time(config, columns, rows, processors)
    time = _memory(config, columns, rows) * math.exp(_large_non_persistent_loss(config, columns))
    return max(time, blocks_of(config, rows) / (processors * _BEGINNING))


def persistent_time(config: NormForwardConfig, columns: int, rows: int, processors: int) -> float:
    """Of persistent blocks, with a ring."""
    if is_small(config, columns, rows, processors):  # reduced: others must be faster by a margin
        time = 4.653 + 1.09 * _memory(config, columns, rows) + 2.36 * (config.blocks_per_row > 1)
        return 0.95 * (time + 0.83 * config.centred + 2.14 * (config.aligned_vectors or _access(config) < 8))
    return _memory(config, columns, rows) * math.exp(_large_persistent_loss(config, columns, rows, processors))


def persistent_loss(config: NormForwardConfig, columns: int, rows: int, processors: int) -> float:
    """For comparing persistent configs with each other: the logarithm of their time over that of the memory traffic,
    less terms that all configs of a shape share.
    """
    room = clusters(config, columns, processors)
    rounds = rows / (max(1, room) * config.block_rows)
    filled = config.stages * config.block_rows * columns / config.blocks_per_row * config.read_bytes / 1024
    return (
        0.3 * -math.log(max(0.05, room * config.blocks_per_row / processors))  # multiprocessors with rows
        + 0.0887 * min(1.0, math.ceil(rounds) / rounds - 1)
        + CUT[config.blocks_per_row]
        + 0.0126 * (config.groups_per_block == 1)
        + 0.0062 * math.log2(config.group_threads / 32) * config.centred
        + 0.0183 * max(0.0, math.log2(config.threads / 512))
        + 0.0201 * max(0, 32 - config.per_thread) / 32 * (config.moved_bytes < 8)
        + 0.0245 * math.log2(16 / _access(config))
        + 0.1042 * (_access(config) == 2)
        + (0.026 + 0.0245 * config.centred + 0.0436 * (config.data_itemsize == 2)) * config.aligned_vectors
        + 0.0311 * (config.blocks_per_row * config.most_columns / columns - 1)
        + 0.1847 * uncoalesced(config.lanes, _access(config))
        + 0.091 * max(0.0, 1 - filled / 48)
        + 0.0068 * (config.stages == 2)
        + 0.0067 * (config.parameters == "shared")
    )


def blocks_of(config: NormForwardConfig, rows: int) -> int:
    """Number of non-persistent blocks."""
    return -(-rows // config.block_rows) * config.blocks_per_row


def _memory(config: NormForwardConfig, columns: int, rows: int) -> float:
    return rows * columns * config.moved_bytes / 4e6


def _large_non_persistent_loss(config: NormForwardConfig, columns: int) -> float:
    """The logarithm of the time over that of the memory traffic. A block loads nothing while it reduces and normalises
    its rows. Other resident blocks must keep enough bytes in flight.
    """
    in_flight = config.blocks_per_processor * config.block_rows * columns * config.read_bytes / 1024
    warps, parameters = math.log2(config.group_threads / 32), _parameters(config)
    enough = 1 + 1.5 * config.centred - 0.9 * config.skips
    enough = 7.3 * (enough + (0.37 + 0.19 * config.centred) * warps)
    return (
        0.387 * math.exp(-in_flight / max(3.0, enough))
        + 0.0228 * config.skips
        - 0.0166 * config.centred
        + 0.0606 * parameters
        + 0.0177 * math.log2(16 / min(16, config.scale_width * config.parameter_itemsize)) * (1 + config.biased)
        + 0.0205 * (config.blocks_per_processor == 1)
        + 0.0085 * max(0.0, math.log2(config.threads / 128))
        + 0.0289 * max(0, config.per_thread * config.itemsize // 4 - 32) / 32
        + 0.0263 * _idle(config, columns)
        + 0.0604 * uncoalesced(config.lanes, _access(config))
        + 0.0089 * (config.lanes <= 8)
        - 0.0134
    )


def _large_persistent_loss(config: NormForwardConfig, columns: int, rows: int, processors: int) -> float:
    """The same of persistent blocks."""
    return (
        0.0474 * math.log2(16 / _access(config))
        + 0.0288 * (_access(config) == 2)
        + (0.0386 + 0.0537 * config.centred + 0.0347 * (config.moved_bytes < 8)) * config.aligned_vectors
        + 0.1664 * (1 + config.centred) / config.moved_bytes  # instructions
        + 0.0231 * (config.itemsize == 8)
        + 0.017 * config.skips
        + 0.0193 * _parameters(config)
        + 0.0151 * (config.parameters == "shared")
        + 0.015 * (config.groups_per_block == 1)
        + 0.0411 * (config.blocks_per_row > 1)
        + 0.0841 * (_idle(config, columns) if config.blocks_per_row == 1 else 0.0)
        + 0.0899 * uncoalesced(config.lanes, _access(config))
        + 0.0228 * min(1.0, 3 * processors / rows)
        - 0.0406 * (rows * columns * config.moved_bytes < 120e6)
        + 0.0097
    )


def _access(config: NormForwardConfig) -> int:
    """Bytes of the narrowest load or store of a row."""
    return config.width * min(config.data_itemsize, config.upstream_itemsize, config.result_itemsize)


def _parameters(config: NormForwardConfig) -> float:
    """Bytes of scale and bias for each byte of rows."""
    return config.parameter_itemsize * (1 + config.biased) / config.moved_bytes


def _idle(config: NormForwardConfig, columns: int) -> float:
    return config.most_columns / columns - 1


def _small_non_persistent_time(config: NormForwardConfig, columns: int, rows: int, processors: int) -> float:
    """Blocks run in rounds of as many as a multiprocessor has room for. New blocks start as others end."""
    blocks, slice_columns = blocks_of(config, rows), columns / config.blocks_per_row
    room = placed(config.blocks_per_row, processors)
    rounds = max(1.0, blocks / (room * config.blocks_per_processor))
    whole_rounds = -(-blocks // (room * config.blocks_per_processor))
    block_bytes = slice_columns * config.block_rows * config.moved_bytes
    parameter_bytes = slice_columns * config.parameter_itemsize * (1 + config.biased) * blocks / processors
    traffic = 0.586 + 0.261 * uncoalesced(config.lanes, config.width * config.data_itemsize)
    traffic += 0.236 * (_access(config) == 2)
    return (
        3.961
        + _memory(config, columns, rows) * traffic
        + 0.791 * -(-blocks // room) * block_bytes / 65536  # of the multiprocessor with the most
        + 0.624 * parameter_bytes / 65536
        + 0.497 * max(32, config.lanes) / 512
        + (0.01 + 0.008 * config.skips) * config.vectors
        + 0.089 * (config.lanes > 32)
        + 0.381 * config.cluster
        + 0.118 * math.log2(config.blocks_per_row)
        + (0.397 + 0.598 * (rounds - 1)) * config.centred
        + 0.238 * math.log2(whole_rounds)
        + 0.136 * math.log2(1 + blocks / processors)
    )
