"""How many microseconds a form takes: models fitted to measurements with a cold L2, by which forms are compared.

Arrays that the memory moves in a few microseconds are done before a ring is full, so what counts is how soon every row
is on its way. The model of blocks that end with their first rows is fitted to 2,600 forms of 205 such shapes (1 to
49,000 rows of 64 to 63,000 columns, every type, 0.3 to 50 MB) on an H200. For shapes left out of the fit the choice
among these takes 1.8 % longer than the best on average, 17 % at most; its time is 4 % off. The model of blocks that
stay there, whose time was 6 % off, is older.

Of greater arrays what counts is how many bytes of rows a multiprocessor has on their way, and how long they are. The
model of blocks that end is fitted to 5,700 forms of 536 shapes of 50 to 800 MB on an H200. For shapes left out the
choice between these and a ring has 0.938 of torch.add's bandwidth in the mean, the best that was timed 0.951; for 115
shapes on an H100, which are not in the fit, 0.965 and 0.975. By the model of blocks that stay, of 225 shapes with up to
16 forms each, 0.876 and 0.891.
"""

from __future__ import annotations

import math

from gradkern.ops.layer_norm.cuda.forward.form import NormForm
from gradkern.ops.layer_norm.cuda.row_tiling import clusters, placed, uncoalesced

__all__ = ["CUT", "blocks_of", "ending_time", "is_small", "staying_loss", "staying_time"]

# what it costs to cut a row into slices, of each number of them, where blocks stay
CUT = {1: 0.0, 2: 0.0428, 3: 0.0357, 4: 0.0357, 6: 0.027, 8: 0.0259, 16: 0.0378}

_BEGINNING = 12  # blocks of a multiprocessor each microsecond, at most
_MOST_BYTES = 30_000_000  # read and written, of small arrays
_MOST_BYTES_OF_FEW = 50_000_000  # where rows are two for a multiprocessor at most


def is_small(form: NormForm, columns: int, rows: int, processors: int) -> bool:
    """The memory moves the arrays in a few microseconds."""
    most = _MOST_BYTES_OF_FEW if rows <= 2 * processors else _MOST_BYTES
    return rows * columns * form.moved_bytes <= most


def ending_time(form: NormForm, columns: int, rows: int, processors: int) -> float:
    """Of blocks that end with their first rows."""
    if is_small(form, columns, rows, processors):
        return _small_ending_time(form, columns, rows, processors)
    time = _memory(form, columns, rows) * math.exp(_ending_loss(form, columns))
    return max(time, blocks_of(form, rows) / (processors * _BEGINNING))


def staying_time(form: NormForm, columns: int, rows: int, processors: int) -> float:
    """Of blocks that stay, with a ring."""
    if is_small(form, columns, rows, processors):  # less by what makes others worth it
        time = 4.653 + 1.09 * _memory(form, columns, rows)
        return 0.95 * (
            time + 2.36 * (form.slices > 1) + 0.83 * form.centred + 2.14 * (form.by_units or _access(form) < 8)
        )
    return _memory(form, columns, rows) * math.exp(_staying_loss(form, columns, rows, processors))


def staying_loss(form: NormForm, columns: int, rows: int, processors: int) -> float:
    """By which blocks that stay are compared with each other: the logarithm of their time over the memory's, less what
    all forms of a shape have alike.
    """
    room = clusters(form, columns, processors)
    rounds = rows / (max(1, room) * form.warp_groups * form.group_rows)
    filled = form.stages * form.warp_groups * form.group_rows * columns / form.slices * form.read_bytes / 1024
    return (
        0.3 * -math.log(max(0.05, room * form.slices / processors))  # multiprocessors that have rows
        + 0.0887 * min(1.0, math.ceil(rounds) / rounds - 1)
        + CUT[form.slices]
        + 0.0126 * (form.warp_groups == 1)
        + 0.0062 * math.log2(form.group_threads / 32) * form.centred
        + 0.0183 * max(0.0, math.log2(form.threads / 512))
        + 0.0201 * max(0, 32 - form.per_thread) / 32 * (form.moved_bytes < 8)
        + 0.0245 * math.log2(16 / _access(form))
        + 0.1042 * (_access(form) == 2)
        + (0.026 + 0.0245 * form.centred + 0.0436 * (form.data_itemsize == 2)) * form.by_units
        + 0.0311 * (form.slices * form.most_columns / columns - 1)
        + 0.1847 * uncoalesced(form.lanes, _access(form))
        + 0.091 * max(0.0, 1 - filled / 48)
        + 0.0068 * (form.stages == 2)
        + 0.0067 * (form.parameters == "shared")
    )


def blocks_of(form: NormForm, rows: int) -> int:
    """How many blocks end with their first rows."""
    return -(-rows // (form.warp_groups * form.group_rows)) * form.slices


def _memory(form: NormForm, columns: int, rows: int) -> float:
    return rows * columns * form.moved_bytes / 4e6


def _ending_loss(form: NormForm, columns: int) -> float:
    """The logarithm of the time over the memory's. A block loads nothing while it adds up its rows and normalises them:
    others must, as many as have room for enough bytes on their way.
    """
    under_way = form.blocks_per_processor * form.warp_groups * form.group_rows * columns * form.read_bytes / 1024
    warps, parameters = math.log2(form.group_threads / 32), _parameters(form)
    late = form.parameters == "global"
    enough = 7.3 * (
        1 + 1.5 * form.centred - 0.9 * form.skips + (0.37 + 0.19 * form.centred) * warps + 0.47 * late * parameters
    )
    return (
        0.387 * math.exp(-under_way / max(3.0, enough))
        + 0.0228 * form.skips
        - 0.0166 * form.centred
        + 0.0606 * parameters
        + 0.0177 * math.log2(16 / min(16, form.scale_width * form.parameter_itemsize)) * (1 + form.biased)
        + 0.0093 * late
        + 0.0205 * (form.blocks_per_processor == 1)
        + 0.0085 * max(0.0, math.log2(form.threads / 128))
        + 0.0289 * max(0, form.per_thread * form.itemsize // 4 - 32) / 32
        + 0.0263 * _idle(form, columns)
        + 0.0604 * uncoalesced(form.lanes, _access(form))
        + 0.0089 * (form.lanes <= 8)
        - 0.0134
    )


def _staying_loss(form: NormForm, columns: int, rows: int, processors: int) -> float:
    """The same of blocks that stay."""
    return (
        0.0474 * math.log2(16 / _access(form))
        + 0.0288 * (_access(form) == 2)
        + (0.0386 + 0.0537 * form.centred + 0.0347 * (form.moved_bytes < 8)) * form.by_units
        + 0.1664 * (1 + form.centred) / form.moved_bytes  # instructions
        + 0.0231 * (form.itemsize == 8)
        + 0.017 * form.skips
        + 0.0193 * _parameters(form)
        + 0.0151 * (form.parameters == "shared")
        + 0.015 * (form.warp_groups == 1)
        + 0.0411 * (form.slices > 1)
        + 0.0841 * (_idle(form, columns) if form.slices == 1 else 0.0)
        + 0.0899 * uncoalesced(form.lanes, _access(form))
        + 0.0228 * min(1.0, 3 * processors / rows)
        - 0.0406 * (rows * columns * form.moved_bytes < 120e6)
        + 0.0097
    )


def _access(form: NormForm) -> int:
    """Bytes of the narrowest load or store of a row."""
    return form.width * min(form.data_itemsize, form.result_itemsize)


def _parameters(form: NormForm) -> float:
    """Bytes of scale and bias for each byte of rows."""
    return form.parameter_itemsize * (1 + form.biased) / form.moved_bytes


def _idle(form: NormForm, columns: int) -> float:
    return form.most_columns / columns - 1


def _small_ending_time(form: NormForm, columns: int, rows: int, processors: int) -> float:
    """A multiprocessor has its blocks in rounds, of as many as it has room for; the next begin as others end."""
    blocks, slice_columns = blocks_of(form, rows), columns / form.slices
    room = placed(form.slices, processors)
    rounds = max(1.0, blocks / (room * form.blocks_per_processor))
    whole_rounds = -(-blocks // (room * form.blocks_per_processor))
    block_bytes = slice_columns * form.warp_groups * form.group_rows * form.moved_bytes
    parameter_bytes = slice_columns * form.parameter_itemsize * (1 + form.biased) * blocks / processors
    return (
        3.961
        + _memory(form, columns, rows)
        * (0.586 + 0.261 * uncoalesced(form.lanes, form.width * form.data_itemsize) + 0.236 * (_access(form) == 2))
        + 0.791 * -(-blocks // room) * block_bytes / 65536  # of the multiprocessor that has most
        + 0.624 * parameter_bytes / 65536
        + 0.21 * (form.parameters == "global")
        + 0.497 * max(32, form.lanes) / 512
        + (0.01 + 0.008 * form.skips) * form.vectors
        + 0.089 * (form.lanes > 32)
        + 0.381 * form.cluster
        + 0.118 * math.log2(form.slices)
        + (0.397 + 0.598 * (rounds - 1)) * form.centred
        + 0.238 * math.log2(whole_rounds)
        + 0.136 * math.log2(1 + blocks / processors)
    )
