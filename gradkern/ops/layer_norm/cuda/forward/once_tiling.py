"""Blocks that end with their first rows, for arrays that the memory moves in a few microseconds: which threads own
which columns then, and how long that takes.

Such an array is done before a ring is full, so what counts is how soon every row is on its way: blocks load a row at
once, ask for scale and bias right behind it, and the device's queue of blocks does the rest. Where rows are few and
wide, the blocks of a cluster share each.

The times are those of a model, fitted to 8,500 forms of 700 shapes (1 to 40,000 rows of 64 to 65,536 columns, every
type, 0.1 to 50 MB) that were timed on an H200 and an H100 with a cold L2. By the fit the choice, of these forms and of
blocks that stay (`staying_time`), took 1.4 % longer than the best on average, 23 % at most, and 2.7 % for 36 shapes
that were left out of it; its time was 4 % off, that of blocks that stay 6 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from gradkern.cuda.device_code.columns import ITEMSIZE, up
from gradkern.ops.layer_norm.cuda.forward.form import NormForm
from gradkern.ops.layer_norm.cuda.row_tiling import placed

__all__ = ["choose_once", "lanes_for", "staying_time", "without_ring"]

_MOST_BYTES = 30_000_000  # read and written; of more others were as fast or faster
_MOST_BYTES_OF_FEW = 50_000_000  # where rows are two for a multiprocessor at most; more were not timed
_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 2048
_MOST_LANES = 1024
_MOST_BLOCKS = 16  # of a multiprocessor
_VALUES = {2: (8, 16, 24, 32, 48), 4: (4, 8, 16, 24, 32), 8: (2, 4, 8, 12, 16, 24, 32)}  # a thread, by the widest type
_SLICES = (1, 2, 4, 8, 16)
_LEAST_SLICE = 1500  # bytes of a row
_MOST_ROWS_OF_16 = 4  # in clusters of 16 blocks, of which there is room for 7
_THREADS = (1, 128, 256)  # of a block, at least, where multiprocessors have several


def choose_once(
    form: NormForm, columns: int, rows: int, processors: int, most_slices: int = 16, more_registers: int = 0
) -> tuple[float, NormForm] | None:
    """`form` with all its numbers, of a block that ends with its first rows, and the time in microseconds; None where
    nothing is known. Width and types are given, and the source of rows, which tells whether the device has clusters.
    most_slices: of a row; more_registers: which a thread needs with the device's assembler.
    """
    most = _MOST_BYTES_OF_FEW if rows <= 2 * processors else _MOST_BYTES
    if form.source != "bulk" or form.shifted or rows * columns * form.moved_bytes > most:
        return None
    form = replace(form, source="plain")
    if rows > _MOST_ROWS_OF_16:
        most_slices = min(most_slices, 8)
    slices = [each for each in _SLICES if each <= min(most_slices, placed(each, processors))]
    every = _candidates(form, columns, rows, processors, slices, more_registers)
    timed = ((_time(each, columns, rows, processors), each) for each in every)
    return min(timed, key=lambda each: each[0], default=None)


def staying_time(form: NormForm, columns: int, rows: int) -> float:
    """Microseconds that blocks take which stay, with a ring: what to compare with."""
    memory = 1.09 * rows * columns * form.moved_bytes / 4e6
    return 4.6 + memory + 2.36 * (form.slices > 1) + 0.83 * form.centred + 2.14 * form.by_units


def lanes_for(columns: int, values: int) -> int:
    """Threads that have so many values each of a row, as a group has them: a power of two, or whole warps."""
    least = -(-columns // values)
    return up(least, 32) if least > 16 else 1 << (least - 1).bit_length()


def without_ring(form: NormForm, columns: int, threads: int) -> NormForm:
    """A block of about so many threads, one group at least, that ends with its first rows."""
    return replace(
        form,
        source="plain",
        by_lines=False,
        warp_groups=max(1, threads // form.group_threads),
        stages=2,
        packed=form.packed or form.group_rows == 1,  # which nobody asks about a single row
        certain_vectors=form.fewest_vectors(columns),
    )


def _candidates(
    form: NormForm, columns: int, rows: int, processors: int, slices: Iterable[int], more_registers: int
) -> Iterator[NormForm]:
    for chosen in _with_columns(form, columns, slices):
        threads = _THREADS if rows > 2 * processors and chosen.slices == 1 else (1,)
        for block in dict.fromkeys(without_ring(chosen, columns, each) for each in threads):
            for parameters in ("ahead", "global"):
                each = replace(block, parameters=parameters)
                registers = _registers(each) + more_registers
                held = up(each.threads, 128)  # so many have registers taken: a processor gives them to four warps alike
                most = min(_MOST_THREADS // held, _REGISTERS // (held * registers))
                wanted = 1 << (-(-_blocks(each, rows) // processors) - 1).bit_length()  # so that kernels serve many
                if most and registers < 256:
                    yield replace(each, blocks_per_processor=min(most, wanted, _MOST_BLOCKS))


def _with_columns(form: NormForm, columns: int, slices_of_row: Iterable[int]) -> Iterator[NormForm]:
    """The ways to give a row's columns to threads."""
    widest = max(form.data_itemsize, form.result_itemsize)
    for slices, values in product(slices_of_row, _VALUES[widest]):
        slice_columns = replace(form, slices=slices).slice_columns(columns)
        if slices > 1 and (slice_columns * widest < _LEAST_SLICE or slice_columns * (slices - 1) >= columns):
            continue
        lanes = lanes_for(slice_columns, values)
        if values % form.width or lanes > _MOST_LANES or (slices > 1 and lanes < 32):
            continue
        spills = (lanes <= 32 and values * widest > 128) or (values > 32 and (lanes < 32 or form.width == 1))
        if not spills:
            yield replace(form, slices=slices, lanes=lanes, vectors=values // form.width)


def _time(form: NormForm, columns: int, rows: int, processors: int) -> float:
    """Microseconds. A multiprocessor has its blocks in rounds, of as many as it has room for; the next begin as others
    end.
    """
    blocks, slice_columns = _blocks(form, rows), columns / form.slices
    room = placed(form.slices, processors)
    rounds = max(1.0, blocks / (room * form.blocks_per_processor))
    whole_rounds = -(-blocks // (room * form.blocks_per_processor))
    memory = rows * columns * form.moved_bytes / 4e6
    block_bytes = slice_columns * form.warp_groups * form.group_rows * form.moved_bytes
    parameters = 1 + form.biased
    parameter_bytes = slice_columns * ITEMSIZE[form.parameter] * parameters * blocks / processors
    uncoalesced = max(0.0, 64 / (min(32, form.lanes) * form.width * form.data_itemsize) - 1)
    late = form.per_thread * ITEMSIZE[form.parameter] / 128 * parameters if form.parameters == "global" else 0.0
    single = form.width * form.data_itemsize == 2  # bytes of an access
    return (
        4.14
        + memory * (0.675 + 0.281 * uncoalesced + 0.434 * single)
        + 0.482 * -(-blocks // room) * block_bytes / 65536  # of the multiprocessor that has most
        + 0.696 * parameter_bytes / 65536
        + 0.38 * max(32, form.lanes) / 512
        + 0.008 * form.vectors * (1 + form.skips)
        + 0.071 * (form.lanes > 32)
        + 0.799 * form.cluster
        + 0.114 * (form.slices == 16)
        + (0.324 + 0.064 * (rounds - 1)) * form.centred
        + 0.883 * math.log2(whole_rounds)
        + 0.212 * late * whole_rounds
    )


def _blocks(form: NormForm, rows: int) -> int:
    return -(-rows // (form.warp_groups * form.group_rows)) * form.slices


def _registers(form: NormForm) -> int:
    """What a thread needs, so that none spills: a row's values, the words that are on their way beside them, and the
    rest.
    """
    words = form.itemsize // 4
    needed = form.per_thread * words
    if form.skips:
        needed += form.per_thread * form.data_itemsize // 4
    if form.parameters == "ahead":
        needed += form.parameter_words * (1 + form.biased)
    exchange = form.cluster or form.lanes > 32
    rest = 16 + 8 * words * (1 + (exchange or form.lanes < 32) + form.centred) + 8 * form.cluster * form.centred
    if form.parameters == "global" and form.per_thread >= 24:
        rest += 8 + 8 * form.cluster
    return up(needed + rest, 8)
