"""Which threads own which columns: the numbers of a LayerNormForm, from the shape, the types and the device.

The rules say what was measured on an H200 with a cold L2: two 16-byte vectors of each tensor a thread (three where
that wastes fewer lanes), at most 512 threads on a multiprocessor, in two independent groups at least, and 64 to 110 KB
of rows in flight: with more, some multiprocessors run ahead of others and all wait for the slowest at the end.

Few rows are weighed by how often all blocks take rows, how many values a thread has then, and how many rows of sums are
written and added up at the end, of which there are fewer where rows are cut. 397 forms of 86 shapes (4
to 16384 rows, every type) were timed on an H200: in 74 shapes the choice is among them, and takes 1.1 % more than the
best on average, where the fewest values a thread, at any price, had taken 5 % more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gradkern.cuda.device_code.columns import chunk_of, up
from gradkern.ops.layer_norm.cuda.form import LayerNormForm
from gradkern.ops.layer_norm.cuda.row_tiling import LEAST_SLICE, begins_within_lines, clusters, coalesced

__all__ = ["choose"]

_REGISTERS = 65536  # of a multiprocessor
_SMALL = 128 * 1024  # bytes of shared memory; assemblers for devices with less take a few registers more
_IN_FLIGHT = 110 * 1024  # bytes of rows on their way to a multiprocessor
_WORTH = {  # of values a thread, by the bytes of the widest element
    2: {8: 0.86, 12: 0.93, 16: 1.0, 24: 0.97},
    4: {4: 0.8, 6: 0.9, 8: 1.0, 10: 0.98, 12: 0.99, 14: 0.97, 16: 0.96, 24: 0.9},
    8: {4: 0.9, 8: 1.0, 12: 0.9},
}
_HALVES = 0.97  # the worth of vectors half as wide as alignment allows, which may waste fewer lanes
_ONE_UNIT = 0.7  # that of one vector a thread, where it may hold another row's elements
_SINGLE = {8: 0.9, 9: 0.96, 12: 1.0, 16: 1.0}  # of values a thread, where an access is of one element of 2 bytes
_FULL = {2: 12288, 4: 14336, 8: 14336}  # bytes of a tensor's rows that threads hold so that a multiprocessor is busy
_ALONE = (224, 256)  # lanes of one group that are better than twice as many: see _with_fewer_warps
_FEW = 4  # rows for a multiprocessor
_MOST_GROUPS = 4  # of a block, where rows are few
_MANY_GROUPS = 8  # one less is faster: 103 forms of random gradients took 0.99 of the time (0.95 to 1.05) on an H200
_FEW_WORTH, _FEW_HALVES = 0.95, 0.9  # the least worth of more values than are best; that of vectors half as wide
_VALUE = 6e-5  # what few rows cost for each value a thread has of each round, in milliseconds; and in such units:
_ROUND, _MEETING, _PARTIAL = 32, 6, 4.5e-6  # a round, a cluster, a byte of partial sums
_CUT = {1: 1.0, 2: 0.985, 3: 0.99, 4: 1.0, 6: 0.94, 8: 0.99, 16: 0.96}  # what it costs to cut a row into slices


def choose(form: LayerNormForm, columns: int, rows: int, processors: int, shared_bytes: int) -> LayerNormForm:
    """`form` with its threads, slices, stages and final sums filled in; width, types and source are given."""
    few = rows if rows <= _FEW * processors else 0
    chosen = max(_candidates(form, columns, few, processors, shared_bytes), key=lambda each: each[0])[1]
    return _finished(chosen, columns, few, processors, shared_bytes)


def _finished(chosen: LayerNormForm, columns: int, few: int, processors: int, shared_bytes: int) -> LayerNormForm:
    """A candidate with its groups, stages and final sums."""
    small = shared_bytes < _SMALL
    chosen = replace(chosen, warp_groups=max(1, _threads(chosen, small) // chosen.group_threads))
    if few:
        chosen = replace(chosen, warp_groups=min(chosen.warp_groups, _MOST_GROUPS))
    elif chosen.warp_groups % 2 == 0 and chosen.lanes <= 64 and chosen.per_thread == 24:
        chosen = replace(chosen, warp_groups=chosen.warp_groups // 2, blocks_per_processor=2)
    if chosen.warp_groups >= _MANY_GROUPS and not few:
        chosen = replace(chosen, warp_groups=chosen.warp_groups - 1)
    chosen = _with_fewer_warps(chosen, columns)
    chosen = replace(chosen, by_lines=begins_within_lines(chosen, columns))
    stage = chosen.warp_groups * chosen.blocks_per_processor * sum(chosen.filled)
    stages = max(2 if chosen.refills_early else 3, min(4, _IN_FLIGHT // stage))
    if chosen.invertible and chosen.group_threads == 32 and not few:
        stages = 2
    # worth it where blocks drift apart most, but every group reads one counter, so not where there are many of them
    threads = chosen.group_threads
    if chosen.centred:  # elsewhere it costs; a small device's float64 spills registers without it
        throttled = chosen.compute == "float64" and small and threads >= 128
    elif chosen.compute == "float64":
        throttled = threads >= 128
    elif chosen.data_itemsize == 4:
        throttled = threads == 256 or threads >= 480 or chosen.slices >= 4
    else:
        throttled = threads in (256, 512) and chosen.width > 1 and not chosen.by_units
    chosen = replace(
        chosen,
        stages=stages,
        most_ahead=1 if throttled and chosen.phase == "fused" and chosen.sums and not few else 0,
        single_block=chosen.phase == "apply" and 2 * chosen.slices > processors,
        chunk=chunk_of(chosen.sums, chosen.slices * chosen.most_columns, chosen.threads, processors),
        packed=chosen.packed or chosen.group_rows == 1,  # which nobody asks about a single row
    )
    chosen = replace(chosen, certain_vectors=chosen.fewest_vectors(columns))
    while chosen.shared_bytes * chosen.blocks_per_processor > shared_bytes and chosen.stages > 2:
        chosen = replace(chosen, stages=chosen.stages - 1)
    while chosen.shared_bytes > shared_bytes and chosen.warp_groups > 1:
        chosen = replace(chosen, warp_groups=chosen.warp_groups // 2)
    if chosen.shared_bytes > shared_bytes:
        chosen = replace(chosen, source="plain", by_lines=False)
    return chosen


def _candidates(
    form: LayerNormForm, columns: int, few: int, processors: int, shared_bytes: int
) -> Iterator[tuple[float, LayerNormForm]]:
    """Every way to give the columns to threads, with how good it is. few: how many rows there are, if they are few."""
    registers = form.itemsize // 4  # of one value
    widest = max(form.data_itemsize, form.upstream_itemsize, form.result_itemsize)
    best = max(_WORTH[widest], key=_WORTH[widest].__getitem__)
    in_clusters = form.source == "bulk"
    for slices in _CUT if in_clusters else (1,):
        slice_columns = replace(form, slices=slices).slice_columns(columns)
        if slice_columns * (slices - 1) >= columns or (slices > 1 and slice_columns * widest < LEAST_SLICE):
            continue
        for width, values, worth in _vectors(form, widest, _WORTH[widest]):
            lanes = -(-slice_columns // values)
            lanes = up(lanes, 32) if lanes > 16 or form.by_units else 1 << (lanes - 1).bit_length()
            lanes = up(lanes, 64) if lanes > 384 and registers == 2 else lanes  # 416 lanes spill registers
            if lanes > 512 or (form.by_units and slices > 1 and values > 16):  # the latter spill registers
                continue
            chosen = replace(form, slices=slices, lanes=lanes, vectors=values // width)
            chosen = replace(chosen, width=width, scale_width=min(form.scale_width, width))
            small = shared_bytes < _SMALL
            # without clusters the other way would be to read all rows twice
            if (in_clusters or chosen.per_thread * registers * (3 + chosen.sums) > 128) and _spills(chosen, small):
                continue
            if in_clusters and replace(chosen, stages=2).shared_bytes > shared_bytes:
                continue
            groups = _threads(chosen, small) // chosen.group_threads
            shape = coalesced(chosen) * _CUT[slices]
            if few:
                if worth >= _FEW_WORTH or values <= best:
                    shape *= _FEW_HALVES if width < form.width else 1
                    yield shape / _cost_of_few(chosen, groups, columns, few, processors), chosen
                continue
            used = columns / (slices * chosen.most_columns)
            full = 0.75 + 0.25 * min(1.0, groups * chosen.group_threads * values * widest / _FULL[widest])
            if widest < 4 and form.width > 1 and groups == 1:  # nobody works while its warps wait for each other
                full *= 0.95
            yield used * worth * full * shape * _busy(chosen, columns, processors), chosen
    if in_clusters:  # too wide to row_in_registers a row in registers: the ring is read twice
        chosen = replace(form, slices=16, lanes=512, row_in_registers=False)
        chosen = replace(chosen, vectors=-(-chosen.slice_columns(columns) // (form.width * 512)))
        # Sums may take 32 of a thread's 128 registers; or 64 if rows lie in a ring, in vectors of 8, so that all else
        # needs few, and X_grad is wanted: without it, the two launches below are one that reads its rows once, too.
        roomy = form.width == 8 and replace(chosen, stages=2).shared_bytes <= shared_bytes and form.makes_X_grad
        if chosen.per_thread * registers * form.sums <= (64 if roomy else 32):
            yield 0.001, chosen
    most = max(1, 16 // registers // form.width)  # any number of columns: two launches, slices in separate blocks
    slices = -(-columns // (256 * most * form.width))
    if slices > 1:
        yield 0.0001, replace(form, slices=slices, lanes=256, vectors=most, phase="apply")
    elif not in_clusters:
        yield 0.0001, replace(form, lanes=256, vectors=most)


def _vectors(form: LayerNormForm, widest: int, worth: Mapping[int, float]) -> Iterator[tuple[int, int, float]]:
    """Widths of vectors, and how many values a thread may have of a row then, with what that is worth.

    widest: bytes of the widest element; worth: of values a thread, where an access is of more than 2 bytes.
    """
    halves = form.width // 2 if form.width * widest == 16 and form.width > 1 and not form.by_units else 0
    for width, share in ((form.width, 1.0), (halves, _HALVES)):
        for values, each in (_SINGLE if width == 1 and widest == 2 else worth).items():
            if width and values % width == 0:
                yield width, values, each * share * (_ONE_UNIT if form.by_units and values == width else 1.0)


def _busy(form: LayerNormForm, columns: int, processors: int) -> float:
    """What it costs that some multiprocessors get no rows: clusters lie within one part of the device, and their number
    is a multiple of the period. The others have more of the memory's bandwidth then, so it is less than their share.
    """
    return math.sqrt(clusters(form, columns, processors) * form.slices / processors)


def _with_fewer_warps(form: LayerNormForm, columns: int) -> LayerNormForm:
    """Twice the values of 2 bytes a thread where one group alone has a row's slice: its warps wait less for each other.
    17 random gradients of 20 to 800 MB took 0.955 of the time in the median on an H200 (0.905 to 1.026), 16 on an H100
    0.976. Without a mean it is as long; with fewer lanes longer, and in float64, where registers spill.
    """
    widest = max(form.data_itemsize, form.upstream_itemsize, form.result_itemsize)
    alone = form.warp_groups == 1 and form.slices > 1 and form.phase == "fused" and form.row_in_registers
    if not alone or widest > 2 or form.per_thread != 16 or not form.centred or form.sums != 2:
        return form
    lanes = up(-(-form.slice_columns(columns) // 32), 32)
    return replace(form, lanes=lanes, vectors=32 // form.width) if lanes in _ALONE else form


def _cost_of_few(form: LayerNormForm, groups: int, columns: int, rows: int, processors: int) -> float:
    """How many milliseconds few rows should take."""
    blocks = clusters(form, columns, processors)
    if not blocks:
        return math.inf
    rounds = -(-rows // (blocks * min(groups, _MOST_GROUPS) * form.group_rows))
    partial = min(blocks, rows) * columns * form.sums * form.itemsize
    in_values = rounds * (_ROUND + form.per_thread) + (_MEETING if form.slices > 1 else 0) + _PARTIAL * partial
    return in_values * _VALUE


def _registers_needed(form: LayerNormForm, small: bool) -> int:
    """By a thread: sums, a row's values and scales, and about 40 for the rest, more where sums go through more than two
    warps or a warp has several rows, and then still more on a small device.
    """
    each = form.sums + (2 if form.row_in_registers else 0) + (1 if form.scale_in_registers else 0)
    rest = ((52 if small else 44) if _many(form) else 36) if form.scale_in_registers else 60
    rest += 8 if "X_grad_sum" in form.outputs and form.phase == "apply" else 0
    return up(max(form.per_thread * (form.itemsize // 4) * each + rest, 64), 8)


def _spills(form: LayerNormForm, small: bool) -> bool:
    """One group alone has too few registers: rows took up to 1.5 times as long."""
    return up(form.group_threads, 128) * _least_registers(form, small) > _REGISTERS


def _least_registers(form: LayerNormForm, small: bool) -> int:
    """Where vectors are a row's and scales in registers, the compiler makes do with 16 less than a thread better has,
    or 8 where vectors, or sums, are many.
    """
    spare = 16 if form.per_thread <= 16 and form.sums < 3 else 8
    return _registers_needed(form, small) - (spare if form.scale_in_registers and not form.by_units else 0)


def _many(form: LayerNormForm) -> bool:
    return form.scale_in_registers and not 32 <= form.lanes <= 64


def _threads(form: LayerNormForm, small: bool) -> int:
    """How many threads have the registers they need, which are given to four warps at a time."""
    most = _REGISTERS // _registers_needed(form, small)
    whole = most // 128 * 128
    if form.sums == 3 or (_many(form) and (small or whole >= 2 * form.group_threads)):
        most = whole
    most = min(512, most)
    together = most // form.group_threads * form.group_threads
    if form.lanes > 64 and up(together, 128) * _least_registers(form, small) > _REGISTERS:
        most = whole  # two groups of 224 lanes would spill registers
    return max(form.group_threads, most)
