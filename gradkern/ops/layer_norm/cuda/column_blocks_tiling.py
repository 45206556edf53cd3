"""Few rows: whether blocks of their own should add up scale_grad and bias_grad, and which threads own which columns then.

The times are those of a model, fitted to 500 forms of 43 shapes (1 to 8000 rows, every type) that were timed on an H200
with a cold L2, 0.4 to 50 MB. By it the choice among these forms takes 2.5 % longer than the best on average, 16 % at
most; its time is 5 % off, and that of blocks that have rows and sums (`_time_together`) 9 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from gradkern.cuda.device_code.columns import up
from gradkern.ops.layer_norm.cuda.form import LayerNormForm
from gradkern.ops.layer_norm.cuda.row_tiling import placed

__all__ = ["with_column_blocks"]

_REGISTERS = 65536  # of a multiprocessor
_MOST_THREADS = 2048
_VALUES = {2: (8, 16, 24), 4: (4, 8, 16), 8: (2, 4, 8)}  # of a row a thread has, by the bytes of the widest element
_SLICES = (1, 2, 4, 8)
_LEAST_SLICE = 2048  # bytes of a row
_THREADS = (256, 512)  # of a block, at most
_STRIPE_LANES = (2, 4, 8, 16, 32)
_SAFE = 0.97  # of the time of blocks that have both, so that the choice is worth it


def with_column_blocks(form: LayerNormForm, columns: int, rows: int, processors: int) -> LayerNormForm | None:
    """`form` with all its numbers, if it is faster so; width and types are given, and a source that has clusters."""
    every = ((_time(each, columns, rows, processors), each) for each in _candidates(form, columns))
    time, chosen = min(every, key=lambda each: each[0], default=(math.inf, form))
    return chosen if time < _SAFE * _time_together(form, columns, rows) else None


def _candidates(form: LayerNormForm, columns: int) -> Iterator[LayerNormForm]:
    widest = max(form.data_itemsize, form.upstream_itemsize, form.result_itemsize)
    stripe_vectors = max(1, 8 // (form.width * widest))  # of single narrow elements a thread has several
    for slices in _SLICES if form.source == "bulk" else (1,):
        slice_columns = replace(form, slices=slices).slice_columns(columns)
        if slices > 1 and (slice_columns * widest < _LEAST_SLICE or slice_columns * (slices - 1) >= columns):
            continue
        for values in _VALUES[widest]:
            lanes = -(-slice_columns // values)
            lanes = up(lanes, 32) if lanes > 16 else 1 << (lanes - 1).bit_length()
            for threads in _THREADS:
                groups = threads // max(lanes, 32) if slices == 1 else int(lanes <= threads)
                if not groups:
                    continue
                rows_of = replace(
                    form,
                    source="plain",
                    slices=slices,
                    lanes=lanes,
                    vectors=values // form.width,
                    warp_groups=groups,
                    stages=2,
                    packed=form.packed or lanes >= 32,  # which nobody asks about a single row
                    stripe_vectors=stripe_vectors,
                )
                rows_of = replace(rows_of, certain_vectors=rows_of.fewest_vectors(columns))
                rows_of = replace(rows_of, blocks_per_processor=min(4, _resident(rows_of)))
                if rows_of.blocks_per_processor:
                    yield from (replace(rows_of, stripe_lanes=each) for each in _STRIPE_LANES)


def _time(form: LayerNormForm, columns: int, rows: int, processors: int) -> float:
    """Microseconds. The blocks go through the multiprocessors in turn: none ends before its own time, and all together
    not before they have had theirs. What is not theirs is the launch, and the memory's.
    """
    rows_at_once = form.threads // form.stripe_lanes * form.rows_ahead
    narrow = max(0.0, 64 / (form.stripe_lanes * form.width * form.data_itemsize) - 1)
    row_block = 0.92 + 0.07 * form.lanes / 256 + 1.7 * form.cluster + 1.05 * (not form.scale_in_registers)
    rounds = -(-rows // rows_at_once)
    column_block = 2.47 + 0.375 * rounds * (1 + narrow / 3) * math.sqrt(form.threads / 256)
    row_blocks = -(-rows // (form.warp_groups * form.group_rows)) * form.slices
    column_blocks = -(-columns // form.stripe)
    resident = placed(form.slices, processors) * form.blocks_per_processor
    all_blocks = (row_blocks * row_block + column_blocks * column_block) / resident
    memory = rows * columns * form.data_itemsize * 1e-6 + 0.32 * column_blocks / processors
    return 2.2 + max(all_blocks, row_block, column_block) + memory + 0.44 * form.cluster


def _time_together(form: LayerNormForm, columns: int, rows: int) -> float:
    """Microseconds that it takes where the blocks with the rows add up, too."""
    row = columns * form.data_itemsize
    return 6.5 + rows * row * 0.96e-6 + 2.5 * (row / 8192) ** (1 / 3) + 1.1 * form.invertible - 1.2 * (not form.centred)


def _resident(form: LayerNormForm) -> int:
    """Blocks that have the registers that they need at the same time on a multiprocessor."""
    words = form.itemsize // 4
    of_rows = form.per_thread * words * (3 if form.scale_in_registers else 2) + (40 if form.scale_in_registers else 60)
    loads = form.stripe_vectors * max(1, form.width * form.data_itemsize // 4)
    loads += form.stripe_vectors * max(1, form.width * form.upstream_itemsize // 4)
    of_columns = form.rows_ahead * (loads + 2 * words) + 3 * form.stripe_vectors * form.width * words + 40
    registers = up(max(of_rows, of_columns), 8)
    return min(_REGISTERS // (up(form.threads, 128) * registers), _MOST_THREADS // form.threads)
