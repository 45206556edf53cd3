"""Which threads own which columns: the numbers of a NormForm, from the shape, the types and the device.

Every way to give a row's columns to threads is weighed by a model of what it takes (`times`): blocks that stay, with a
ring that the memory fills ahead, and blocks that end with their first rows (`once_tiling`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.forward.form import NormForm
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
    staying = _staying([*_widths(form), *(_units(units) if units else ())], columns, rows, processors, shared_bytes)
    if once is None:
        return staying
    time, ending = once
    # blocks of small arrays that have no next row need no ring
    alone = is_small(form, columns, rows, processors) and rows <= 2 * processors and staying.slices == 1
    return ending if alone or time < staying_time(staying, columns, rows, processors) else staying


def _widths(form: NormForm) -> Iterator[NormForm]:
    """Vectors as wide as alignment allows, and half as wide, which may waste fewer lanes."""
    yield form
    if form.width * form.widest == 16 and form.width > 1 and not form.by_units:
        yield replace(form, width=form.width // 2, scale_width=min(form.scale_width, form.width // 2))


def _units(units: NormForm) -> Iterator[NormForm]:
    """Units of 16 bytes, of 8 and of 4: of smaller ones fewer rows have shifts of their own."""
    width = units.width
    while width > 1 and width * units.data_itemsize >= 4:
        yield replace(units, width=width, aligned=width * units.data_itemsize == 16)
        width //= 2


def _staying(forms: list[NormForm], columns: int, rows: int, processors: int, shared_bytes: int) -> NormForm:
    """Blocks that stay, and take rows in turn."""
    every = [each for form in forms for each in _candidates(form, columns, rows, processors, shared_bytes)]
    full = [each for each in every if each.slices * each.most_columns <= _MOST_IDLE * columns]
    if every:
        return min(full or every, key=lambda each: staying_loss(each, columns, rows, processors))
    form = forms[0]  # any number of columns: two launches, slices in separate blocks
    most = max(1, 16 // (form.itemsize // 4) // form.width)
    slices = -(-columns // (256 * most * form.width))
    form = replace(form, slices=slices, lanes=256, vectors=most, parameters="shared", phase="apply")
    several = [_with_stages(replace(form, warp_groups=groups), columns, shared_bytes) for groups in (2, 1)]
    fits = [each for each in several if each.shared_bytes <= shared_bytes and each.threads * form.itemsize <= 2048]
    return (fits or several[-1:])[0]


def _candidates(form: NormForm, columns: int, rows: int, processors: int, shared_bytes: int) -> Iterator[NormForm]:
    """Every way to give the columns to threads for which there are registers and shared memory."""
    widest = form.widest
    for slices in CUT if form.source == "bulk" else (1,):
        slice_columns = replace(form, slices=slices).slice_columns(columns)
        if slice_columns * (slices - 1) >= columns or (slices > 1 and slice_columns * widest < LEAST_SLICE):
            continue
        for values in _VALUES[widest]:
            lanes = up(-(-slice_columns // values), 32) if form.by_units else lanes_for(slice_columns, values)
            if lanes > _MOST_LANES or values % form.width:
                continue
            chosen = replace(form, slices=slices, lanes=lanes, vectors=values // form.width)
            if clusters(chosen, columns, processors):
                yield from _with_groups(chosen, columns, rows <= 2 * processors, shared_bytes)


def _with_groups(form: NormForm, columns: int, few: bool, shared_bytes: int) -> Iterator[NormForm]:
    """Blocks of one or several such groups, with scale and bias in registers if these suffice."""
    computes_much = form.centred and form.widest == 2
    for groups in {max(1, threads // form.group_threads) for threads in _THREADS[computes_much:]}:
        if (few and groups > 4) or (groups > 15 and form.lanes > 32):  # of named barriers a block has 15
            continue
        for parameters in ("registers", "shared"):
            chosen = replace(form, warp_groups=groups, parameters=parameters)
            if _registers(chosen, shared_bytes) <= min(255, _REGISTERS // up(chosen.threads, 128)):
                made = _with_stages(chosen, columns, shared_bytes)
                if made.shared_bytes <= shared_bytes:
                    yield made
                break


def _with_stages(form: NormForm, columns: int, shared_bytes: int) -> NormForm:
    form = replace(form, by_lines=begins_within_lines(form, columns))
    size = form.warp_groups * sum(form.filled)
    form = replace(
        form,
        stages=max(min(3, _MOST_IN_FLIGHT // size), min(_MOST_STAGES, _IN_FLIGHT // size), 2),
        packed=form.packed or form.group_rows == 1,  # which nobody asks about a single row
        certain_vectors=form.fewest_vectors(columns),
    )
    while form.shared_bytes > shared_bytes and form.stages > 2:
        form = replace(form, stages=form.stages - 1)
    return form


def _registers(form: NormForm, shared_bytes: int) -> int:
    """What a thread needs: a row's values, its parameters, and the rest."""
    each = 1 + form.shifted + (1 + form.biased if form.parameters == "registers" else 0)
    rest = 24 + 8 * form.itemsize
    if form.by_units:  # with masks
        rest = 76 if form.per_thread < 24 else 92 if form.per_thread < 32 else 116
        rest += (24 + 16 * form.skips) * form.centred if form.per_thread >= 24 else 0
    rest += 48 if form.vectors > 24 else 0
    rest += 4 * form.itemsize * form.skips + (24 if shared_bytes < _SMALL else 0)
    return form.per_thread * (form.itemsize // 4) * each + rest
