"""Run one layer-norm kernel under the CUDA simulator, in memory that shows every stray read and write."""

from __future__ import annotations

import numpy as np

from gradkern.cuda.device_code.columns import bits_of
from gradkern.ops.layer_norm.cuda.config import LayerNormConfig
from gradkern.ops.layer_norm.cuda.kernel import build
from gradkern.ops.layer_norm.cuda.plan import GRADIENT_NAMES
from gradkern.ops.layer_norm.cuda.row_config import ARGUMENTS
from helpers import simulated
from helpers.guarded import Guarded
from helpers.layer_norm import Case


def simulate(
    config: LayerNormConfig, case: Case, grid: int, offset: int = 0, strides: bool = False, in_place: str = ""
) -> None:
    """The results are as near to float64 as their types allow, and nothing else was written."""
    rows, columns = case.inputs["Y_grad"].shape
    held: dict[str, Guarded] = {}
    for name, array in case.inputs.items():
        wide = array.itemsize * columns + 48 if strides and array.ndim == 2 else None
        held[name] = Guarded(array.shape, array.dtype, offset if array.ndim == 2 else 0, wide)
        held[name].array[...] = array
        if name != in_place:
            held[name].freeze()
    for name in config.outputs:
        dtype = {"X_grad": config.result, "branch_grad": config.branch}.get(name)
        new = Guarded((rows, columns), dtype, offset) if dtype else Guarded((columns,), config.parameter)
        held[name] = held[in_place] if name == "X_grad" and in_place else new
    scratch = Guarded((grid * max(1, config.sums) * config.column_sums.padded_columns(columns),), config.compute)
    row_sums = Guarded((max(1, rows) * config.blocks_per_row * 2,), config.compute)
    counter = np.zeros(64, np.uint32)
    named = {
        "columns": columns,
        "slice_columns": config.slice_columns(columns),
        "over_columns": bits_of(1 / columns, config.compute),
        **{GRADIENT_NAMES[name]: each.address for name, each in held.items()},
        "partial": scratch.address,
        "row_sums": row_sums.address,
        "counter": counter.ctypes.data,
        "rows": rows,
        **{f"{GRADIENT_NAMES[name]}_stride": each.array.strides[0] for name, each in held.items()},
    }
    arguments = tuple(np.int64(named.get(name, 0)) for name in ARGUMENTS)
    for phase in config.phases:
        simulated.launch(build(phase), grid, config.threads, phase.launch_cluster, config.shared_bytes, arguments)
    for each in held.values():
        each.check()
    scratch.check()
    row_sums.check()
    case.check({name: np.array(held[name].array) for name in config.outputs})
