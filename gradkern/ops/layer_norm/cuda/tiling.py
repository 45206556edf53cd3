"""Which threads own which columns: the numbers of a Form, from the shape, the types and the device.

The rules say what was measured on an H200 with a cold L2: two 16-byte vectors of each tensor a thread (three where
that wastes fewer lanes), at most 512 threads on a multiprocessor, in two independent teams at least, and 64 to 110 KB
of rows in flight: with more, some multiprocessors run ahead of others and all wait for the slowest at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device_code.columns import chunk_of, up
from gradkern.ops.layer_norm.cuda.form import Form

__all__ = ["choose"]

_REGISTERS = 65536  # of a multiprocessor
_IN_FLIGHT = 110 * 1024  # bytes of rows on their way to a multiprocessor
_WORTH = {  # of values a thread, by the bytes of the widest element
    2: {8: 0.86, 12: 0.93, 16: 1.0, 24: 0.97},
    4: {4: 0.8, 8: 1.0, 12: 0.99, 16: 0.96, 24: 0.9},
    8: {4: 0.9, 8: 1.0, 12: 0.9},
}
_WORTH_SINGLE = {8: 0.9, 9: 0.96, 12: 1.0, 16: 1.0}  # the same where an access is of one element
_CUT = {1: 1.0, 2: 0.985, 4: 0.96, 8: 0.94, 16: 0.85}  # what it costs to cut a row into slices


def choose(form: Form, rows: int, processors: int, shared_bytes: int) -> Form:
    """`form` with its threads, slices, stages and final sums filled in; width, types and source are given."""
    few = rows <= 2 * processors
    made = max(_candidates(form, few, shared_bytes), key=lambda each: each[0])[1]
    made = replace(made, teams=max(1, _threads(made) // made.team_threads))
    if few:
        made = replace(made, teams=max(1, min(made.teams, 4)))
    elif made.teams % 2 == 0 and made.lanes <= 64 and made.per_thread == 24:
        made = replace(made, teams=made.teams // 2, blocks_per_processor=2)
    stage = made.teams * made.blocks_per_processor * sum(made.slots)
    stages = max(2, min(4, _IN_FLIGHT // stage))
    if made.invertible and made.slices == 1 and made.team_threads < 256 and made.teams > 1 and not few:
        stages = 2
    # worth it where blocks drift apart most, but every team looks at one counter, so not where there are many of them
    paced = made.team_threads >= (128 if made.compute == "float64" else 256 if not made.centred else 1024)
    made = replace(
        made,
        stages=stages,
        pace=1 if paced and made.phase == "whole" and made.sums and not few else 0,
        alone=made.phase == "given" and 2 * made.slices > processors,
        chunk=chunk_of(made.sums, made.columns, made.threads, processors),
    )
    while made.shared_bytes * made.blocks_per_processor > shared_bytes and made.stages > 2:
        made = replace(made, stages=made.stages - 1)
    while made.shared_bytes > shared_bytes and made.teams > 1:
        made = replace(made, teams=made.teams // 2)
    if made.shared_bytes > shared_bytes:
        made = replace(made, source="plain")
    return made


def _candidates(form: Form, few: bool, shared_bytes: int) -> Iterator[tuple[float, Form]]:
    """Every way to give the columns to threads, with how good it is."""
    registers = form.itemsize // 4  # of one value
    widest = max(form.data_itemsize, form.upstream_itemsize, form.result_itemsize)
    clusters = form.source == "bulk"
    for slices in _CUT if clusters else (1,):
        columns = replace(form, slices=slices).slice_columns
        if columns * (slices - 1) >= form.columns:
            continue
        for values, worth in (_WORTH_SINGLE if form.width == 1 and widest == 2 else _WORTH[widest]).items():
            vectors = values // form.width
            if vectors * form.width != values:
                continue
            lanes = -(-columns // (vectors * form.width))
            lanes = up(lanes, 32) if lanes > 16 else 1 << (lanes - 1).bit_length()
            if lanes > 512:
                continue
            made = replace(form, slices=slices, lanes=lanes, vectors=vectors)
            used = form.columns / (slices * lanes * vectors * form.width)
            one_team = 0.94 if widest < 4 and form.width > 1 and _threads(made) < 2 * made.team_threads else 1.0
            yield used * (1 / values if few else worth) * one_team * _CUT[slices], made
    if clusters:  # too wide to hold a row in registers: the ring is read twice
        made = replace(form, slices=16, lanes=512, hold=False)
        made = replace(made, vectors=-(-made.slice_columns // (form.width * 512)))
        # Sums may take 32 of a thread's 128 registers; or 64 if rows lie in a ring, in vectors of 8, so that all else
        # needs few, and X_grad is wanted: without it, the two launches below are one that reads its rows once, too.
        roomy = form.width == 8 and replace(made, stages=2).shared_bytes <= shared_bytes and "X_grad" in form.outputs
        if made.per_thread * registers * form.sums <= (64 if roomy else 32):
            yield 0.001, made
    vectors = max(1, 16 // registers // form.width)  # any number of columns: two launches, slices in separate blocks
    slices = -(-form.columns // (256 * vectors * form.width))
    if slices > 1:
        yield 0.0001, replace(form, slices=slices, lanes=256, vectors=vectors, phase="given")
    elif not clusters:
        yield 0.0001, replace(form, lanes=256, vectors=vectors)


def _threads(form: Form) -> int:
    """How many threads have the registers they need: sums, held values and scales, and about 40 for the rest."""
    each = form.sums + (2 if form.hold else 0) + (1 if form.scale_in_registers else 0)
    registers = form.per_thread * (form.itemsize // 4) * each + (36 if form.scale_in_registers else 60)
    return max(form.team_threads, min(512, _REGISTERS // up(max(registers, 64), 8)))
