"""Run the kernels of DirectML's batch norm under the CUDA simulator, in memory that shows every stray access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gradkern.kernels.channels.streaming_config import StreamingConfig, second_pass
from gradkern.kernels.channels.streaming_kernel import build
from gradkern.kernels.channels.streaming_tiling import ARGUMENTS, Dimensions, Tiling, best_tiling, fitted
from gradkern.ops.dml_batch_norm.cuda.plan import NAMES
from gradkern.strides import merged_axes
from helpers import simulated
from helpers.dml_batch_norm import EPSILON, OUTPUTS, TRAINING, Case
from helpers.guarded import Guarded


def simulate(
    case: Case,
    width: int,
    blocks: int = 2,
    outputs: tuple[str, ...] = OUTPUTS,
    offset: int = 0,
    in_place: str = "",
    **config: Any,
) -> Tiling:
    """Check what the streaming kernel makes of a case, whose arrays are in C order; the walk that was taken."""
    X, statistics = case.inputs["Input"], case.inputs["Mean"].shape
    dtype = X.dtype.name
    dims = Dimensions.of(merged_axes(X.shape, [kept == size for kept, size in zip(statistics, X.shape, strict=True)]))
    wanted = frozenset(NAMES[name] for name in outputs)
    made = StreamingConfig(dtype, dtype, dtype, wanted, EPSILON, width, columns=True, **{"threads": 32, **config})
    in_training = case.operator == TRAINING and "dX" in wanted
    if in_training:
        made = replace(made, outputs=wanted - {"dX"}, totals=True)
    made = fitted(made, dims)
    found = best_tiling(made, dims, blocks)
    made = replace(made, has_outer=prod(found.outer_sizes) > 1)

    partial_bytes = found.partial_rows * made.column_sums.partial_bytes(dims.channels)
    totals = [Guarded((dims.channels,), np.dtype(made.compute)) for _ in range(2 * in_training)]
    numbers = found.numbers | {"elements": X.size // max(1, prod(statistics))}
    numbers |= dict(zip(("scale_total", "bias_total"), (each.address for each in totals), strict=False))
    kernel = build(made, second_pass(made) if in_training else None)
    launch(case, made, kernel, ARGUMENTS, NAMES, numbers, partial_bytes, blocks, outputs, in_place, offset)
    for each in totals:
        each.check()
    return found


def launch(
    case: Case,
    config: Any,
    kernel: Any,
    arguments: Sequence[str],
    names: Mapping[str, str],
    numbers: Mapping[str, int],
    partial_bytes: int,
    blocks: int,
    outputs: Sequence[str] = OUTPUTS,
    in_place: str = "",
    offset: int = 0,
) -> None:
    """Check the results of one launch of a kernel whose arguments have these names; names: of the contract, in it."""
    X = case.inputs["Input"]
    held = {name: Guarded((array.size,), X.dtype, offset * X.itemsize) for name, array in case.inputs.items()}
    for name, array in case.inputs.items():
        held[name].array[...] = array.ravel()
        if name != in_place:
            held[name].freeze()
    shapes = {name: X.shape if name == "OutputGradient" else case.inputs["Mean"].shape for name in outputs}
    for name, shape in shapes.items():
        held[name] = Guarded((prod(shape),), X.dtype, offset * X.itemsize)
    if in_place:
        held["OutputGradient"] = held[in_place]
    partial = Guarded((partial_bytes,), np.uint8)
    counter = np.zeros(64, np.uint32)
    addresses = {names[name]: each.address for name, each in held.items()}
    given = {**addresses, **numbers, "partial": partial.address, "counter": counter.ctypes.data}
    values = tuple(np.int64(given.get(name, 0)) for name in arguments)
    simulated.launch(kernel, blocks, config.threads, 1, config.shared_bytes, values)
    for each in (*held.values(), partial):
        each.check()
    case.check({name: np.array(held[name].array).reshape(shape) for name, shape in shapes.items()})
