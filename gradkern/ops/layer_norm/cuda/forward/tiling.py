"""Which threads own which columns: the numbers of a NormForm, from the shape, the types and the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.forward.form import NormForm

__all__ = ["choose"]

_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 512
_IN_FLIGHT = 110 * 1024  # bytes of rows on their way to a multiprocessor
_WORTH = {  # of values a thread, by the bytes of the widest element
    2: {8: 0.86, 16: 1.0, 24: 0.97},
    4: {4: 0.8, 8: 1.0, 12: 0.99, 16: 0.96, 24: 0.9},
    8: {4: 0.9, 8: 1.0, 12: 0.9},
}
_WORTH_SINGLE = {8: 0.9, 9: 0.96, 12: 1.0, 16: 1.0}  # the same where an access is of one element
_CUT = {1: 1.0, 2: 0.95, 4: 0.92, 8: 0.9, 16: 0.85}  # what it costs to cut a row into slices


def choose(form: NormForm, columns: int, rows: int, processors: int, shared_bytes: int) -> NormForm:
    """`form` with its threads, slices and stages filled in; width, types and source are given."""
    few = rows <= 2 * processors
    chosen = max(_candidates(form, columns, few), key=lambda each: each[0])[1]
    if _registers(chosen) > _REGISTERS // max(_MOST_THREADS, chosen.group_threads):
        chosen = replace(chosen, parameters_in_registers=False)
    threads = min(_MOST_THREADS, _REGISTERS // _registers(chosen))
    chosen = replace(chosen, warp_groups=max(1, threads // chosen.group_threads))
    if few:
        chosen = replace(chosen, warp_groups=min(chosen.warp_groups, 4))
    chosen = replace(
        chosen,
        stages=max(2, min(4, _IN_FLIGHT // (chosen.warp_groups * sum(chosen.slots)))),
        packed=chosen.packed or chosen.group_rows == 1,  # which nobody asks about a single row
        certain_vectors=chosen.fewest_vectors(columns),
    )
    while chosen.shared_bytes > shared_bytes and chosen.stages > 2:
        chosen = replace(chosen, stages=chosen.stages - 1)
    while chosen.shared_bytes > shared_bytes and chosen.warp_groups > 1:
        chosen = replace(chosen, warp_groups=chosen.warp_groups // 2)
    return replace(chosen, source="plain") if chosen.shared_bytes > shared_bytes else chosen


def _candidates(form: NormForm, columns: int, few: bool) -> Iterator[tuple[float, NormForm]]:
    """Every way to give the columns to threads, with how good it is."""
    registers = form.itemsize // 4  # of one value
    widest = max(form.data_itemsize, form.result_itemsize)
    for slices in _CUT if form.source == "bulk" else (1,):
        slice_columns = replace(form, slices=slices).slice_columns(columns)
        if slice_columns * (slices - 1) >= columns:
            continue
        for values, worth in (_WORTH_SINGLE if form.width == 1 and widest == 2 else _WORTH[widest]).items():
            vectors = values // form.width
            if vectors * form.width != values:
                continue
            lanes = -(-slice_columns // values)
            lanes = up(lanes, 32) if lanes > 16 else 1 << (lanes - 1).bit_length()
            if lanes > 512:
                continue
            chosen = replace(form, slices=slices, lanes=lanes, vectors=vectors)
            used = columns / (slices * chosen.most_columns)
            yield used * (1 / values if few else worth) * _CUT[slices], chosen
    vectors = max(1, 16 // registers // form.width)  # any number of columns: two launches, slices in separate blocks
    slices = -(-columns // (256 * vectors * form.width))
    yield 0.0001, replace(form, slices=slices, lanes=256, vectors=vectors, phase="apply")


def _registers(form: NormForm) -> int:
    """What a thread needs: a row's values, its parameters, and about 44 for the rest."""
    each = 1 + form.shifted + (1 + form.biased if form.parameters_in_registers else 0)
    return up(form.per_thread * (form.itemsize // 4) * each + 44, 8)
