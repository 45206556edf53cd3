"""Run one layer norm's kernel under the CUDA simulator, in memory that shows every stray read and write."""

from __future__ import annotations

import numpy as np

from gradkern.cuda.device_code.columns import bits_of
from gradkern.ops.layer_norm import NAMES
from gradkern.ops.layer_norm.cuda.config import NormForwardConfig
from gradkern.ops.layer_norm.cuda.kernel import build
from gradkern.ops.layer_norm.cuda.plan import NORM_NAMES
from gradkern.ops.layer_norm.cuda.row_config import ARGUMENTS
from helpers import simulated
from helpers.guarded import Guarded
from helpers.norm_forward import OUTPUTS, Case


def simulate(
    config: NormForwardConfig,
    case: Case,
    grid: int,
    offset: int = 0,
    strides: bool = False,
    in_place: str = "",
    over: str = "Y",
) -> None:
    """The results are as near to float64 as their types allow, and nothing else was written."""
    rows, columns = next(iter(case.inputs.values())).shape
    held: dict[str, Guarded] = {}
    for name, array in case.inputs.items():
        wide = array.itemsize * columns + 48 if strides and array.ndim == 2 else None
        held[name] = Guarded(array.shape, array.dtype, offset if array.ndim == 2 else 0, wide)
        held[name].array[...] = array
        if name != in_place:
            held[name].freeze()
    for name in OUTPUTS[case.operator]:
        if NAMES[name] not in config.outputs:
            continue
        if NAMES[name] in ("Y", "sum"):
            new = Guarded((rows, columns), config.result if NAMES[name] == "Y" else config.upstream, offset)
            held[name] = held[in_place] if in_place and NAMES[name] == over else new
        else:
            held[name] = Guarded((rows,), config.statistic)
    row_sums = Guarded((max(1, rows) * config.blocks_per_row * 2,), config.compute)
    named = {
        "columns": columns,
        "slice_columns": config.slice_columns(columns),
        "over_columns": bits_of(1 / columns, config.compute),
        "epsilon": bits_of(case.epsilon, config.compute),
        **{NORM_NAMES[name]: each.address for name, each in held.items()},
        "row_sums": row_sums.address,
        "rows": rows,
        **{f"{NORM_NAMES[name]}_stride": each.array.strides[0] for name, each in held.items() if each.array.ndim == 2},
    }
    arguments = tuple(np.int64(named.get(name, 0)) for name in ARGUMENTS)
    for phase in config.phases:
        simulated.launch(build(phase), grid, config.threads, phase.launch_cluster, config.shared_bytes, arguments)
    for each in held.values():
        each.check()
    row_sums.check()
    case.check({name: np.array(held[name].array) for name in OUTPUTS[case.operator] if NAMES[name] in config.outputs})
