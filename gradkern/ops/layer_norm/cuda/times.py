"""By which forms of blocks with rows and sums are compared: a model of times, fitted to measurements with a cold L2.

Of 425 random gradients of 8 to 600 MB up to 17 forms each were timed on an H200, 6,400 in all. What the model wants for
shapes that were left out of the fit took 1.3 % longer than the fastest on average, 12 % at most.
"""

from __future__ import annotations

import math

from gradkern.ops.layer_norm.cuda.form import LayerNormForm
from gradkern.ops.layer_norm.cuda.row_tiling import clusters, uncoalesced

__all__ = ["CUT", "staying_loss"]

# what it costs to cut a row into slices, of each number of them
CUT = {1: 0.0, 2: 0.0175, 3: 0.0164, 4: 0.0104, 6: 0.0252, 8: 0.0, 16: 0.0123}


def staying_loss(form: LayerNormForm, columns: int, rows: int, processors: int) -> float:
    """The logarithm of a form's time over the memory's, less what all forms of a shape have alike."""
    narrow, load = form.widest == 2, form.width * min(form.data_itemsize, form.upstream_itemsize)
    access = min(load, form.width * form.result_itemsize)  # bytes of the narrowest load or store
    room = clusters(form, columns, processors)
    at_once = room * form.group_rows
    groups = min(form.blocks_per_processor * form.warp_groups, math.ceil(rows / at_once))  # that have rows
    rounds, threads = rows / (at_once * groups), groups * form.group_threads
    values = form.per_thread * (form.itemsize // 4) / 16
    return (
        0.0729 * -math.log(room * form.slices / processors)  # multiprocessors that have rows
        + 0.099 * min(1.0, math.ceil(rounds) / rounds - 1)
        + CUT[form.slices]
        - 0.0094 * math.log2(form.slices) * min(1.0, 4 * processors / rows)
        + 0.0097 * (form.warp_groups == 1) * narrow  # nobody works while its warps wait for each other
        + 0.0094 * max(0.0, math.log2(512 / threads))
        + 0.064 * max(0.0, 1 - values)
        - 0.0326 * max(0.0, values - 1) * narrow
        + 0.0069 * form.vectors / 8
        + 0.0512 * (access == 2)
        + 0.0377 * form.by_units
        + 0.05 * (form.slices * form.most_columns / columns - 1)
        + 0.021 * uncoalesced(form.lanes, load)
    )
