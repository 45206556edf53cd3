"""Cost model of the gradient's persistent blocks, fitted to times with a cold L2.

Up to 17 configs of each of 425 random gradients of 8 to 600 MB were timed on an H200, 6,400 in all. For shapes left out
of the fit the model's choice took 1.3 % longer than the fastest on average, 12 % at most.

Rows of an odd number of 16-bit columns, as single elements or as aligned vectors, are bound by instructions, not by
memory. 352 configs of 75 such shapes (89 to 65,441 columns) were timed. For the 31 shapes whose promising
configs were timed, the model's choice, fitted without them, took 2.3 % longer than the fastest on average, 13 % at
most. Without the term for instructions it took 5.4 % longer, 29 % at most.
"""

from __future__ import annotations

import math

from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.row_tiling import clusters, uncoalesced

# logarithm of the relative cost of several blocks per row
CUT = {1: 0.0, 2: 0.0175, 3: 0.0164, 4: 0.0104, 6: 0.0252, 8: 0.0, 16: 0.0123}


# microseconds of a multiprocessor, by operator: for each row of a group of warps, whatever its width, and for 1024
# elements, by the width of a thread's accesses
_ROW = {"layer": 0.458, "simplified": 0.457, "invertible": 0.523}
_ELEMENTS = {
    "layer": {1: 0.132, 8: 0.123},
    "simplified": {1: 0.119, 8: 0.102},
    "invertible": {1: 0.146, 8: 0.122},
}
_SINGLE_IN_CLUSTERS = 0.071  # added for each row of single elements and each doubling of its blocks
# added for 1024 elements where the threads of a row together write half a sector of 32 bytes
_PARTS_OF_SECTORS = {"layer": 0.13, "simplified": 0.13, "invertible": 0.068}
_BYTES = 31400  # of memory bandwidth for each multiprocessor, per microsecond
_AROUND = 6  # microseconds of a launch besides its rows


def persistent_loss(config: LayerNormConfig, columns: int, rows: int, processors: int) -> float:
    """Logarithm of a config's time over that of the memory traffic, less terms common to all configs of a shape."""
    narrow, load = config.widest == 2, config.width * min(config.data_itemsize, config.upstream_itemsize)
    access = min(load, config.width * config.result_itemsize)  # bytes of the narrowest load or store
    room = clusters(config, columns, processors)
    at_once = room * config.group_rows
    groups = min(config.blocks_per_processor * config.groups_per_block, math.ceil(rows / at_once))  # with rows
    rounds, threads = rows / (at_once * groups), groups * config.group_threads
    values = config.per_thread * (config.itemsize // 4) / 16
    loss = (
        0.0729 * -math.log(room * config.blocks_per_row / processors)  # multiprocessors that have rows
        + 0.099 * min(1.0, math.ceil(rounds) / rounds - 1)
        + CUT[config.blocks_per_row]
        - 0.0094 * math.log2(config.blocks_per_row) * min(1.0, 4 * processors / rows)
        + 0.0097
        * (config.groups_per_block == 1)
        * narrow  # a block with one group idles while its warps wait for each other
        + 0.0094 * max(0.0, math.log2(512 / threads))
        + 0.064 * max(0.0, 1 - values)
        - 0.0326 * max(0.0, values - 1) * narrow
        + 0.0069 * config.vectors / 8
        + 0.05 * (config.blocks_per_row * config.most_columns / columns - 1)
        + 0.021 * uncoalesced(config.lanes, load)
    )
    if not narrow or not (config.aligned_vectors or config.width == 1):
        return loss + 0.0512 * (access == 2) + 0.0377 * config.aligned_vectors
    moved = rows * columns * (config.data_itemsize + config.upstream_itemsize + config.result_itemsize)
    memory = moved / (processors * _BYTES)
    operator = "invertible" if config.invertible else "layer" if config.centred else "simplified"
    row = _ROW[operator] + _SINGLE_IN_CLUSTERS * math.log2(config.blocks_per_row) * (config.width == 1)
    element = _ELEMENTS[operator][config.width] + _PARTS_OF_SECTORS[operator] * (config.lanes == 8)
    elements = element * threads * config.per_thread / 1024
    instructions = _AROUND + rounds * (row + elements)
    return math.log(_greater(_AROUND + memory * math.exp(loss), instructions) / memory)


def _greater(one: float, other: float) -> float:
    """A smooth maximum: two times overlap, except where they are nearly equal."""
    return (one**8 + other**8) ** 0.125
