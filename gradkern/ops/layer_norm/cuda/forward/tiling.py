"""Which threads own which columns: the numbers of a NormForwardConfig, from the shape, the types and the device.

Every way to give a row's columns to threads is weighed by a model of what it takes (`times`): blocks that stay, with a
ring that the memory fills ahead, and blocks that end with their first rows (`once_tiling`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.forward.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.forward.once_tiling import choose_once, lanes_for
from gradkern.ops.layer_norm.cuda.forward.times import CUT, is_small, staying_loss, staying_time
from gradkern.ops.layer_norm.cuda.row_tiling import LEAST_SLICE, begins_within_lines, clusters

__all__ = ["choose"]

_REGISTERS = 65536  # of a multiprocessor
_MOST_LANES = 512
_THREADS = (384, 512, 768)  # of a multiprocessor, about
_SMALL = 128 * 1024  # bytes of shared memory; of such devices assemblers take a few registers more
_IN_FLIGHT, _MOST_IN_FLIGHT = 110 * 1024, 170 * 1024  # bytes of rows on their way to a multiprocessor
_MOST_STAGES = 6
_VALUES = {2: (8, 9, 12, 16, 24, 32), 4: (4, 8, 12, 16, 24, 32), 8: (4, 6, 8, 12, 16)}  # a thread, by the widest type
_MOST_IDLE = 1.85  # columns that threads have room for, over those of a row: of more, only if nothing else is left


def choose(
    config: NormForwardConfig,
    columns: int,
    rows: int,
    processors: int,
    shared_bytes: int,
    units: NormForwardConfig | None = None,
    most_slices: int = 16,
) -> NormForwardConfig:
    """`config` with its threads, slices and stages filled in; width, types and source are given. units: the same by
    units of memory, where rows may go so; most_slices: of a row that a block ends with.
    """
    more_registers = 4 * config.itemsize * (1 + config.centred) if shared_bytes < _SMALL else 0
    once = choose_once(config, columns, rows, processors, most_slices, more_registers)
    staying = _staying([*_widths(config), *(_units(units) if units else ())], columns, rows, processors, shared_bytes)
    if once is None:
        return staying
    time, ending = once
    # blocks of small arrays that have no next row need no ring
    alone = is_small(config, columns, rows, processors) and rows <= 2 * processors and staying.slices == 1
    return ending if alone or time < staying_time(staying, columns, rows, processors) else staying


def _widths(config: NormForwardConfig) -> Iterator[NormForwardConfig]:
    """Vectors as wide as alignment allows, and half as wide, which may waste fewer lanes."""
    yield config
    if config.width * config.widest == 16 and config.width > 1 and not config.by_units:
        yield replace(config, width=config.width // 2, scale_width=min(config.scale_width, config.width // 2))


def _units(units: NormForwardConfig) -> Iterator[NormForwardConfig]:
    """Units of 16 bytes, of 8 and of 4: of smaller ones fewer rows have shifts of their own."""
    width = units.width
    while width > 1 and width * units.data_itemsize >= 4:
        yield replace(units, width=width, aligned=width * units.data_itemsize == 16)
        width //= 2


def _staying(
    configs: list[NormForwardConfig], columns: int, rows: int, processors: int, shared_bytes: int
) -> NormForwardConfig:
    """Blocks that stay, and take rows in turn."""
    every = [each for config in configs for each in _candidates(config, columns, rows, processors, shared_bytes)]
    full = [each for each in every if each.slices * each.most_columns <= _MOST_IDLE * columns]
    if every:
        return min(full or every, key=lambda each: staying_loss(each, columns, rows, processors))
    config = configs[0]  # any number of columns: two launches, slices in separate blocks
    most = max(1, 16 // (config.itemsize // 4) // config.width)
    slices = -(-columns // (256 * most * config.width))
    config = replace(config, slices=slices, lanes=256, vectors=most, parameters="shared", phase="apply")
    several = [_with_stages(replace(config, warp_groups=groups), columns, shared_bytes) for groups in (2, 1)]
    fits = [each for each in several if each.shared_bytes <= shared_bytes and each.threads * config.itemsize <= 2048]
    return (fits or several[-1:])[0]


def _candidates(
    config: NormForwardConfig, columns: int, rows: int, processors: int, shared_bytes: int
) -> Iterator[NormForwardConfig]:
    """Every way to give the columns to threads for which there are registers and shared memory."""
    widest = config.widest
    for slices in CUT if config.source == "bulk" else (1,):
        slice_columns = replace(config, slices=slices).slice_columns(columns)
        if slice_columns * (slices - 1) >= columns or (slices > 1 and slice_columns * widest < LEAST_SLICE):
            continue
        for values in _VALUES[widest]:
            lanes = up(-(-slice_columns // values), 32) if config.by_units else lanes_for(slice_columns, values)
            if lanes > _MOST_LANES or values % config.width:
                continue
            chosen = replace(config, slices=slices, lanes=lanes, vectors=values // config.width)
            if clusters(chosen, columns, processors):
                yield from _with_groups(chosen, columns, rows <= 2 * processors, shared_bytes)


def _with_groups(config: NormForwardConfig, columns: int, few: bool, shared_bytes: int) -> Iterator[NormForwardConfig]:
    """Blocks of one or several such groups, with scale and bias in registers if these suffice."""
    computes_much = config.centred and config.widest == 2
    for groups in {max(1, threads // config.group_threads) for threads in _THREADS[computes_much:]}:
        if (few and groups > 4) or (groups > 15 and config.lanes > 32):  # of named barriers a block has 15
            continue
        for parameters in ("registers", "shared"):
            chosen = replace(config, warp_groups=groups, parameters=parameters)
            if _registers(chosen, shared_bytes) <= min(255, _REGISTERS // up(chosen.threads, 128)):
                made = _with_stages(chosen, columns, shared_bytes)
                if made.shared_bytes <= shared_bytes:
                    yield made
                break


def _with_stages(config: NormForwardConfig, columns: int, shared_bytes: int) -> NormForwardConfig:
    config = replace(config, by_lines=begins_within_lines(config, columns))
    size = config.warp_groups * sum(config.filled)
    config = replace(
        config,
        stages=max(min(3, _MOST_IN_FLIGHT // size), min(_MOST_STAGES, _IN_FLIGHT // size), 2),
        packed=config.packed or config.group_rows == 1,  # which nobody asks about a single row
        certain_vectors=config.fewest_vectors(columns),
    )
    while config.shared_bytes > shared_bytes and config.stages > 2:
        config = replace(config, stages=config.stages - 1)
    return config


def _registers(config: NormForwardConfig, shared_bytes: int) -> int:
    """What a thread needs: a row's values, its parameters, and the rest."""
    each = 1 + config.shifted + (1 + config.biased if config.parameters == "registers" else 0)
    rest = 24 + 8 * config.itemsize
    if config.by_units:  # with masks
        rest = 76 if config.per_thread < 24 else 92 if config.per_thread < 32 else 116
        rest += (24 + 16 * config.skips) * config.centred if config.per_thread >= 24 else 0
    rest += 48 if config.vectors > 24 else 0
    rest += 4 * config.itemsize * config.skips + (24 if shared_bytes < _SMALL else 0)
    return config.per_thread * (config.itemsize // 4) * each + rest
