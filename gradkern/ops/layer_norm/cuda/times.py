"""By which configs of blocks with rows and sums are compared: a model of times, fitted to measurements with a cold L2.

Of 425 random gradients of 8 to 600 MB up to 17 configs each were timed on an H200, 6,400 in all. What the model wants
for shapes that were left out of the fit took 1.3 % longer than the fastest on average, 12 % at most.

Rows of odd columns in 16 bits, as single elements or by units, are bound by instructions: they take a group of warps
so long whatever the memory does. Of 75 such shapes (89 to 65,441 columns) 352 configs were timed. Of the 31 with all
that promised most, what the model wants, left out of the fit, took 2.3 % longer than the fastest on average, 13 % at
most; before it knew of instructions 5.4 %, 29 % at most.
"""

from __future__ import annotations

import math

from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_tiling import clusters, uncoalesced

__all__ = ["CUT", "staying_loss"]

# what it costs to cut a row into slices, of each number of them
CUT = {1: 0.0, 2: 0.0175, 3: 0.0164, 4: 0.0104, 6: 0.0252, 8: 0.0, 16: 0.0123}


# microseconds of a multiprocessor, by operator: for each row that a group of warps takes, whatever its width, and for
# 1024 elements, by the width of a thread's accesses
_ROW = {"layer": 0.458, "simplified": 0.457, "invertible": 0.523}
_ELEMENTS = {
    "layer": {1: 0.132, 4: 0.129, 8: 0.123},
    "simplified": {1: 0.119, 4: 0.106, 8: 0.102},
    "invertible": {1: 0.146, 4: 0.134, 8: 0.122},
}
_SINGLE_IN_CLUSTERS = 0.071  # more for each row of single elements, each time its slices double
# more for 1024 elements of which a row's threads together write half a sector of 32 bytes
_PARTS_OF_SECTORS = {"layer": 0.13, "simplified": 0.13, "invertible": 0.068}
_BYTES = 31400  # that the memory moves for each multiprocessor in a microsecond
_AROUND = 6  # microseconds that are not the rows'


def staying_loss(config: LayerNormConfig, columns: int, rows: int, processors: int) -> float:
    """The logarithm of a config's time over the memory's, less what all configs of a shape have alike."""
    narrow, load = config.widest == 2, config.width * min(config.data_itemsize, config.upstream_itemsize)
    access = min(load, config.width * config.result_itemsize)  # bytes of the narrowest load or store
    room = clusters(config, columns, processors)
    at_once = room * config.group_rows
    groups = min(config.blocks_per_processor * config.warp_groups, math.ceil(rows / at_once))  # that have rows
    rounds, threads = rows / (at_once * groups), groups * config.group_threads
    values = config.per_thread * (config.itemsize // 4) / 16
    loss = (
        0.0729 * -math.log(room * config.slices / processors)  # multiprocessors that have rows
        + 0.099 * min(1.0, math.ceil(rounds) / rounds - 1)
        + CUT[config.slices]
        - 0.0094 * math.log2(config.slices) * min(1.0, 4 * processors / rows)
        + 0.0097 * (config.warp_groups == 1) * narrow  # nobody works while its warps wait for each other
        + 0.0094 * max(0.0, math.log2(512 / threads))
        + 0.064 * max(0.0, 1 - values)
        - 0.0326 * max(0.0, values - 1) * narrow
        + 0.0069 * config.vectors / 8
        + 0.05 * (config.slices * config.most_columns / columns - 1)
        + 0.021 * uncoalesced(config.lanes, load)
    )
    if not narrow or not (config.by_units or config.width == 1):
        return loss + 0.0512 * (access == 2) + 0.0377 * config.by_units
    moved = rows * columns * (config.data_itemsize + config.upstream_itemsize + config.result_itemsize)
    memory = moved / (processors * _BYTES)
    operator = "invertible" if config.invertible else "layer" if config.centred else "simplified"
    row = _ROW[operator] + _SINGLE_IN_CLUSTERS * math.log2(config.slices) * (config.width == 1)
    element = _ELEMENTS[operator][config.width] + _PARTS_OF_SECTORS[operator] * (config.lanes == 8)
    elements = element * threads * config.per_thread / 1024
    instructions = _AROUND + rounds * (row + elements)
    return math.log(_greater(_AROUND + memory * math.exp(loss), instructions) / memory)


def _greater(one: float, other: float) -> float:
    """Of two times that hide each other but for where they are alike."""
    return (one**8 + other**8) ** 0.125
