"""Blocks that end with their first rows: which threads own which columns, by a model of times.

They load their rows at once and ask for scale and bias right behind them, or when they need them; the device's own
queue of blocks keeps what is under way together, better than blocks that stay and drift apart. Where rows are few and
wide, the blocks of a cluster share each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.forward.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.times import blocks_of, ending_time, is_small
from gradkern.ops.layer_norm.cuda.row_tiling import placed

__all__ = ["choose_once", "lanes_for"]

_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 2048
_MOST_LANES = 1024
_MOST_COLUMNS = 13_000  # of large arrays
_MOST_COMPUTED = 2048  # of these, with a mean, of one array of 2-byte elements: eight of more columns had a ring faster
_VALUES = {2: (8, 16, 24, 32, 48), 4: (4, 8, 16, 24, 32), 8: (2, 4, 8, 12, 16, 24, 32)}  # a thread, by the widest type
_VALUES_OF_LARGE = {2: (8, 16, 24, 32, 48), 4: (4, 6, 8, 12, 16, 24, 32), 8: (4, 6, 8, 10, 12, 16, 20, 24)}
_SLICES = (1, 2, 4, 8, 16)
_LEAST_SLICE = 1500  # bytes of a row
_MOST_ROWS_OF_16 = 4  # in clusters of 16 blocks, of which there is room for 7
_THREADS = (1, 128, 256)  # of a block, at least, where multiprocessors have several
_THREADS_OF_LARGE = (64, 128, 256, 512)
_MOST_BLOCKS = 16  # of a multiprocessor, where arrays are small


def choose_once(
    config: NormForwardConfig, columns: int, rows: int, processors: int, most_slices: int = 16, more_registers: int = 0
) -> tuple[float, NormForwardConfig] | None:
    """`config` with all its numbers, of a block that ends with its first rows, and the time in microseconds; None where
    nothing is known. Width and types are given, and the source of rows, which tells whether the device has clusters.
    most_slices: of a row; more_registers: which a thread needs with the device's assembler.
    """
    if config.source != "bulk" or config.shifted or config.by_units:
        return None
    config = replace(config, source="plain")
    if is_small(config, columns, rows, processors):
        if rows > _MOST_ROWS_OF_16:
            most_slices = min(most_slices, 8)
        slices = [each for each in _SLICES if each <= min(most_slices, placed(each, processors))]
        every = _candidates_of_small(config, columns, rows, processors, slices, more_registers)
    else:
        every = _candidates_of_large(config, columns, more_registers)
    timed = ((ending_time(each, columns, rows, processors), each) for each in every)
    return min(timed, key=lambda each: each[0], default=None)


def lanes_for(columns: int, values: int) -> int:
    """Threads that have so many values each of a row, as a group has them: a power of two, or whole warps."""
    least = -(-columns // values)
    return up(least, 32) if least > 16 else 1 << (least - 1).bit_length()


def _candidates_of_small(
    config: NormForwardConfig, columns: int, rows: int, processors: int, slices: Iterable[int], more_registers: int
) -> Iterator[NormForwardConfig]:
    for chosen in _with_columns(config, columns, slices, _VALUES):
        threads = _THREADS if chosen.slices == 1 else (1,)
        for each in _with_rows(chosen, columns, threads, more_registers):
            if each.warp_groups > 1 and (each.warp_groups - 1) * each.group_rows >= rows:
                continue
            wanted = 1 << (-(-blocks_of(each, rows) // processors) - 1).bit_length()  # so that kernels serve many
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
    config: NormForwardConfig, columns: int, slices_of_row: Iterable[int], values_of: dict[int, tuple[int, ...]]
) -> Iterator[NormForwardConfig]:
    """The ways to give a row's columns to threads."""
    widest = config.widest
    for slices, values in product(slices_of_row, values_of[widest]):
        slice_columns = replace(config, slices=slices).slice_columns(columns)
        if slices > 1 and (slice_columns * widest < _LEAST_SLICE or slice_columns * (slices - 1) >= columns):
            continue
        lanes = lanes_for(slice_columns, values)
        if values % config.width or lanes > _MOST_LANES or (slices > 1 and lanes < 32):
            continue
        spills = (lanes <= 32 and values * widest > 128) or (values > 32 and (lanes < 32 or config.width == 1))
        if not spills:
            yield replace(config, slices=slices, lanes=lanes, vectors=values // config.width)


def _with_rows(
    config: NormForwardConfig, columns: int, threads: Iterable[int], more_registers: int
) -> Iterator[NormForwardConfig]:
    """Blocks of about so many threads, one group at least, and where their parameters are; as many as have room."""
    for groups in dict.fromkeys(max(1, each // config.group_threads) for each in threads):
        block = replace(
            config,
            by_lines=False,
            warp_groups=groups,
            stages=2,
            packed=config.packed or config.group_rows == 1,  # which nobody asks about a single row
            certain_vectors=config.fewest_vectors(columns),
        )
        for parameters in ("ahead", "global"):
            made = replace(block, parameters=parameters)
            most = _most_blocks(made, more_registers)
            if most:
                yield replace(made, blocks_per_processor=most)


def _most_blocks(config: NormForwardConfig, more_registers: int) -> int:
    """Of a multiprocessor, by its registers, which it gives to four warps alike; 0 if a thread would need too many."""
    registers = _registers(config) + more_registers
    at_once = max(1, 128 // config.threads)
    held = up(at_once * config.threads, 128)
    return at_once * min(_MOST_THREADS // held, _REGISTERS // (held * registers)) if registers < 256 else 0


def _registers(config: NormForwardConfig) -> int:
    """What a thread needs, so that none spills: a row's values, the words that are on their way beside them, and the
    rest.
    """
    words = config.itemsize // 4
    needed = config.per_thread * words
    if config.skips:
        needed += config.per_thread * config.data_itemsize // 4
    if config.parameters == "ahead":
        needed += config.parameter_words * (1 + config.biased)
    exchange = config.cluster or config.lanes > 32
    rest = 16 + 8 * words * (1 + (exchange or config.lanes < 32) + config.centred + config.cluster * config.centred)
    rest += 8 * (config.vectors > 8)
    if config.parameters == "global" and config.per_thread >= 24:
        rest += 8 * (exchange or config.vectors > 4) + 8 * config.cluster
    if config.parameters == "global" and config.centred and needed >= 24 and config.vectors > 4:
        rest += 16 if config.lanes == 32 and needed >= 32 else 8
    if config.skips and config.lanes < 32:
        rest += 16 * words
    return up(needed + rest, 8)
