"""Which threads own which columns: the numbers of a NormForm, from the shape, the types and the device.

The rules say what was measured on an H200 with a cold L2, at 270 to 540 MB: 512 threads on a multiprocessor and about
100 KB of rows in flight; 32 values a thread (24 where that wastes fewer lanes, 16 where there are 512 lanes then), so
that a row has few warps, and few slices above all; scale and bias in shared memory where a row has several warps.
Between the best forms of a shape lie 2 %.

Many rows are faster without a ring: a block for a few rows, which loads them, and scale and bias when it needs them,
and ends. The device's own queue of blocks keeps what is in flight together better than blocks that stay and drift
apart: 0.95 of torch.add's bandwidth in place of 0.92 at 768 columns. But no row is on its way while a block's only one
is added up, so that takes registers that hold enough of other blocks' rows: `_once` says where.

Small arrays go so, too, but what they take is another matter: `once_tiling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.forward.form import NormForm
from gradkern.ops.layer_norm.cuda.forward.once_tiling import (
    choose_once,
    lanes_for,
    staying_time,
    without_ring,
)
from gradkern.ops.layer_norm.cuda.row_tiling import (
    LEAST_SLICE,
    SINGLE,
    begins_within_lines,
    busy,
    coalesced,
    vectors,
)

__all__ = ["choose"]

_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 512
_MOST_OF_TWO = 768  # threads, where they are two groups in place of one
_SMALL = 128 * 1024  # bytes of shared memory; of such devices assemblers take a few registers more
_IN_FLIGHT = 110 * 1024  # bytes of rows on their way to a multiprocessor
_WORTH = {  # of values a thread, by the bytes of the widest element
    2: {8: 0.82, 12: 0.9, 16: 0.97, 24: 0.99, 32: 1.0},
    4: {4: 0.85, 8: 0.96, 12: 0.97, 16: 0.98, 24: 0.99, 32: 1.0},
    8: {4: 0.83, 8: 0.92, 12: 1.0},
}
_WORTH_SKIP = {
    2: {8: 0.86, 12: 0.93, 16: 1.0, 24: 0.97},
    4: {4: 0.8, 8: 1.0, 12: 0.99, 16: 0.96},
    8: {4: 0.9, 8: 1.0},
}
_WORTH_UNITS = {16: 0.8, 24: 0.95, 32: 1.0}  # the same by units of 2-byte elements, without skip
_SINGLE = {**SINGLE, 8: 1.0}  # the same where an access is of one element of 2 bytes
_ALL_LANES = 1.01  # the worth of 16 values a thread, where all 512 threads have one row
_ONCE = {32: 1.0, 24: 0.99, 16: 0.95, 12: 0.85}  # the worth of values a thread in a block that ends with its first rows
_ONCE_IN_FLOAT64 = (8, 10, 12)  # values a thread
_BY_RING = range(4096, 16384 + 1)  # rows: see _once
_SAFE = 0.95  # of the time of blocks that stay, so that the others are worth it
_CUT = {1: 1.0, 2: 0.97, 3: 0.94, 4: 0.985, 6: 0.8, 8: 0.79, 16: 0.76}  # what it costs to cut a row into slices


def choose(
    form: NormForm,
    columns: int,
    rows: int,
    processors: int,
    shared_bytes: int,
    units: NormForm | None = None,
    most_slices: int = 16,
) -> NormForm:
    """`form` with its threads, slices and stages filled in; width, types and source are given. units: the same by units
    of memory, where rows may go so; most_slices: of a row that a block ends with.
    """
    small = choose_once(form, columns, rows, processors, most_slices, 8 if shared_bytes < _SMALL else 0)
    once = _once(form, columns, rows)
    if once and not small:
        return once
    staying = _staying(units, columns, rows, processors, shared_bytes) if units else None
    if staying is None or staying.phase != "fused":
        staying = _staying(form, columns, rows, processors, shared_bytes)
    if small:
        time, chosen = small
        alone = rows <= 2 * processors and staying.slices == 1  # blocks have no next row, for which a ring would be
        if alone or time < _SAFE * staying_time(staying, columns, rows):
            return chosen
    return once or staying


def _staying(form: NormForm, columns: int, rows: int, processors: int, shared_bytes: int) -> NormForm:
    """Blocks that stay, and take rows in turn."""
    few = rows <= 2 * processors
    chosen = max(_candidates(form, columns, few, processors, shared_bytes), key=lambda each: each[0])[1]
    threads = min(_MOST_THREADS, _REGISTERS // _registers(chosen))
    chosen = replace(chosen, warp_groups=max(1, threads // chosen.group_threads))
    if few:
        chosen = replace(chosen, warp_groups=min(chosen.warp_groups, 4))
    chosen = replace(
        chosen,
        by_lines=begins_within_lines(chosen, columns),
        stages=max(2, min(6, _IN_FLIGHT // (chosen.warp_groups * sum(chosen.filled)))),
        packed=chosen.packed or chosen.group_rows == 1,  # which nobody asks about a single row
        certain_vectors=chosen.fewest_vectors(columns),
    )
    if not few and _has_two_groups(chosen):
        chosen = replace(chosen, warp_groups=2)
    elif chosen.warp_groups == 1 and _has_registers_alone(chosen, shared_bytes):
        chosen = replace(chosen, parameters="registers")
    while chosen.shared_bytes > shared_bytes and chosen.stages > 2:
        chosen = replace(chosen, stages=chosen.stages - 1)
    while chosen.shared_bytes > shared_bytes and chosen.warp_groups > 1:
        chosen = replace(chosen, warp_groups=chosen.warp_groups // 2)
    return chosen


def _once(form: NormForm, columns: int, rows: int) -> NormForm | None:
    """Blocks that end with their first rows, where that is faster.

    While a block adds up its row and normalises it, it loads nothing: other blocks must, as much as they have registers
    for. So rows of several warps need about 64 bytes a thread and array: 16 values of 4 bytes, 24 or 32 of 2. A mean
    takes a sum over lanes more, and most such norms add a bias: then only data of 4 bytes and 4096 columns at most.
    Without a mean rows of 2 bytes an element are faster so if there are two arrays of them; of one alone, wide rows
    took up to 1.3 times as long as through the ring. One array of 4 bytes is faster so where its rows are of 128, 256
    or 512 threads: 34 random others of 60 to 500 MB had 0.936 of the time through the ring on average (0.82 to 1.04).

    A row of one warp, of one array, with a mean, a bias and 32 values a thread leaves registers for 14 blocks only: as
    many rows as were measured take 0.87 to 0.96 of the time through the ring.
    """
    itemsize = max(form.data_itemsize, form.result_itemsize)
    if form.source != "bulk" or form.by_units or form.shifted:
        return None
    if itemsize == 8:
        return _once_in_float64(form, columns)
    if form.width * itemsize < 16:
        return None
    if 128 < columns < 256:  # a warp has four rows, which the ring gets as one piece of memory
        return None
    if columns <= 1024:
        if form.centred and form.biased and not form.skips and itemsize == 2 and columns > 768 and rows in _BY_RING:
            return None
        values, lanes, threads = (32, 24, 16), 32, 64
    elif form.data_itemsize == 4:
        values, lanes, threads = (16, 12), 256 if form.centred else 512, 256
    elif not form.centred and (form.skips or itemsize == 4):
        values, lanes, threads = (32, 24), 512, 256
    else:
        return None
    every = _of_a_row(form, columns, values, lanes)
    if not every:
        return None
    best = max(every, key=_worth_once(columns))
    if columns > 1024 and not form.skips and (best.lanes not in (128, 256, 512) or form.result_itemsize < 4):
        return None
    chosen = without_ring(best, columns, threads)
    needed = up(chosen.per_thread + (48 if form.skips else 40), 8)
    return replace(chosen, parameters="global", blocks_per_processor=_REGISTERS // (chosen.threads * needed))


def _once_in_float64(form: NormForm, columns: int) -> NormForm | None:
    """The same in float64, of rows of two warps at most, without a mean or with skip: 18 random norms of 50 to 500 MB
    had 0.972 of the time on average on an H200 (0.91 to 1.02). Wider rows took up to 1.36 of it; others, as long.
    """
    every = _of_a_row(form, columns, _ONCE_IN_FLOAT64, lanes=64) if form.skips or not form.centred else []
    if not every:
        return None
    best = max(every, key=lambda each: coalesced(each) * columns / each.most_columns)
    chosen = without_ring(best, columns, 128 if best.lanes <= 32 else 256)
    # registers besides the values, as many as newer assemblers take: most where a warp has several rows
    rest = 80 if best.lanes < 32 else 64 if form.centred or not form.skips else 56
    most = _REGISTERS // (chosen.threads * up(2 * chosen.per_thread + rest, 8))
    return replace(chosen, parameters="global" if form.skips else "ahead", blocks_per_processor=most)


def _of_a_row(form: NormForm, columns: int, values: Iterable[int], lanes: int) -> list[NormForm]:
    """With so many values a thread, those that need no more lanes for a row."""
    every = (replace(form, lanes=lanes_for(columns, each), vectors=each // form.width) for each in values)
    return [each for each in every if each.lanes <= lanes]


def _worth_once(columns: int) -> Callable[[NormForm], float]:
    return lambda form: _ONCE[form.per_thread] * coalesced(form) * columns / form.most_columns


def _candidates(
    form: NormForm, columns: int, few: bool, processors: int, shared_bytes: int
) -> Iterator[tuple[float, NormForm]]:
    """Every way to give the columns to threads for which there is shared memory, with how good it is."""
    registers = form.itemsize // 4  # of one value
    widest = max(form.data_itemsize, form.result_itemsize)
    for slices in _CUT if form.source == "bulk" else (1,):
        slice_columns = replace(form, slices=slices).slice_columns(columns)
        if slice_columns * (slices - 1) >= columns or (slices > 1 and slice_columns * widest < LEAST_SLICE):
            continue
        values_of = (_WORTH_SKIP if form.skips else _WORTH)[widest]
        if form.by_units and widest == 2 and not form.skips:
            values_of = _WORTH_UNITS
        for width, values, worth in vectors(form, widest, values_of, _SINGLE):
            lanes = up(-(-slice_columns // values), 32) if form.by_units else lanes_for(slice_columns, values)
            if lanes > 512:
                continue
            chosen = replace(form, slices=slices, lanes=lanes, vectors=values // width)
            chosen = replace(chosen, width=width, scale_width=min(form.scale_width, width))
            chosen = replace(chosen, parameters="registers" if _has_registers(chosen, shared_bytes) else "shared")
            if replace(chosen, stages=2).shared_bytes > shared_bytes:
                continue
            used = columns / (slices * chosen.most_columns)
            if widest == 2 and values == 16 and lanes > 384 and not form.skips and not form.by_units:
                worth = _ALL_LANES
            elif values == 32 and lanes < 32:
                worth = 0.95
            # blocks of a cluster meet at a cost that few rows do not hide
            worth, cut = (1 / values, 1 / slices) if few else (worth, _CUT[slices])
            yield used * worth * coalesced(chosen) * cut * busy(chosen, columns, processors), chosen
    most = max(1, 16 // registers // form.width)  # any number of columns: two launches, slices in separate blocks
    slices = -(-columns // (256 * most * form.width))
    yield 0.0001, replace(form, slices=slices, lanes=256, vectors=most, phase="apply")


def _has_two_groups(form: NormForm) -> bool:
    """There are registers for two in place of one, which has nothing to do while its threads wait for each other."""
    if form.source != "bulk" or form.by_units or form.centred or max(form.data_itemsize, form.result_itemsize) > 2:
        return False
    return form.warp_groups == 1 and form.group_threads * 2 <= min(_MOST_OF_TWO, _REGISTERS // _registers(form))


def _has_registers(form: NormForm, shared_bytes: int) -> bool:
    """For scale and bias, beside a row's values. Assemblers for devices with little shared memory take a few more."""
    values = form.per_thread * (form.itemsize // 4)
    if form.by_units and form.biased:  # with masks for vectors that are cut, too few are left
        return False
    if form.lanes <= 32:
        rest = 40 if shared_bytes < _SMALL else 16
        return values * (2 + form.biased + form.shifted) + rest <= _REGISTERS // _MOST_THREADS
    return values <= 16 and form.lanes <= 256


def _has_registers_alone(form: NormForm, shared_bytes: int) -> bool:
    """The same of one group that has the multiprocessor to itself. Its threads wait for each other, and longer if they
    have to read parameters then: with these in registers 26 random norms of 15 to 500 MB took 0.977 of the time on
    average on an H200 (0.83 to 1.02), 20 on an H100 0.994. Float64 gained nothing.
    """
    values_of_units = 16 if form.biased else 24  # more spill
    if form.phase != "fused" or form.itemsize > 4 or (form.by_units and form.per_thread > values_of_units):
        return False
    rest = (76 if form.by_units else 56) + (24 if form.shifted or shared_bytes < _SMALL else 0)
    needed = form.per_thread * (2 + form.biased + form.shifted) + rest
    return needed <= min(255, _REGISTERS // up(form.threads, 128))


def _registers(form: NormForm) -> int:
    """What a thread needs: a row's values, its parameters, and about 44 for the rest, or 72 where it adds up float64's
    three vectors. Only such may have fewer threads than 512 for it.
    """
    wide = form.skips and form.itemsize == 8
    each = 1 + form.shifted + (1 + form.biased if form.parameters == "registers" else 0)
    needed = form.per_thread * (form.itemsize // 4) * each + (72 if wide else 44)
    return up(min(needed, 255 if wide else _REGISTERS // _MOST_THREADS), 8)
