"""Which threads own which columns: the numbers of a NormForm, from the shape, the types and the device.

The rules say what was measured on an H200 with a cold L2, at 270 to 540 MB: 512 threads on a multiprocessor and about
100 KB of rows in flight; 32 values a thread (24 where that wastes fewer lanes, 16 where there are 512 lanes then), so
that a row has few warps, and few slices above all; scale and bias in shared memory where a row has several warps.
Between the best forms of a shape lie 2 %.

Where blocks that end with their first rows are faster (`once_tiling`), these are taken, by models of both times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.forward.form import NormForm
from gradkern.ops.layer_norm.cuda.forward.once_tiling import choose_once, lanes_for
from gradkern.ops.layer_norm.cuda.forward.times import is_small, staying_time
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
    more_registers = 4 * form.itemsize * (1 + form.centred) if shared_bytes < _SMALL else 0
    once = choose_once(form, columns, rows, processors, most_slices, more_registers)
    staying = _staying(units, columns, rows, processors, shared_bytes) if units else None
    if staying is None or staying.phase != "fused":
        staying = _staying(form, columns, rows, processors, shared_bytes)
    if once is None:
        return staying
    time, ending = once
    # blocks of small arrays that have no next row need no ring
    alone = is_small(form, columns, rows, processors) and rows <= 2 * processors and staying.slices == 1
    return ending if alone or time < staying_time(staying, columns, rows, processors) else staying


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
