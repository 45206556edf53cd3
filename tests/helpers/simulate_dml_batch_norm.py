"""Run the batch norms' kernel under the CUDA simulator, in memory that shows every stray read and write."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gradkern.channel_kernels.streaming_form import StreamingForm
from gradkern.channel_kernels.streaming_kernel import build
from gradkern.channel_kernels.streaming_tiling import ARGUMENTS, Slabs, Tiling, best_tiling, fitted
from gradkern.cuda.device_code import simulated
from gradkern.ops.dml_batch_norm.cuda.plan import NAMES
from gradkern.strides import merged_axes
from helpers.dml_batch_norm import EPSILON, OUTPUTS, Case
from helpers.guarded import Guarded


def simulate(
    case: Case,
    width: int,
    blocks: int = 2,
    outputs: tuple[str, ...] = OUTPUTS,
    offset: int = 0,
    in_place: str = "",
    **form: Any,
) -> Tiling:
    """Check the results of a case, whose arrays are in C order; the walk that was taken."""
    X, statistics = case.inputs["Input"], case.inputs["Mean"].shape
    dtype = X.dtype.name
    slabs = Slabs.of(merged_axes(X.shape, [kept == size for kept, size in zip(statistics, X.shape, strict=True)]))
    wanted = frozenset(NAMES[name] for name in outputs)
    made = StreamingForm(dtype, dtype, dtype, wanted, EPSILON, width, columns=True, **{"threads": 32, **form})
    made = fitted(made, slabs)
    found = best_tiling(made, slabs, blocks)
    made = replace(made, nested=prod(found.nest) > 1)

    held = {name: Guarded((array.size,), X.dtype, offset * X.itemsize) for name, array in case.inputs.items()}
    for name, array in case.inputs.items():
        held[name].array[...] = array.ravel()
        if name != in_place:
            held[name].freeze()
    shapes = {name: X.shape if name == "OutputGradient" else statistics for name in outputs}
    for name, shape in shapes.items():
        held[name] = Guarded((prod(shape),), X.dtype, offset * X.itemsize)
    if in_place:
        held["OutputGradient"] = held[in_place]
    partial = Guarded((found.partial_rows * made.column_sums.partial_bytes(slabs.channels),), np.uint8)
    counter = np.zeros(64, np.uint32)
    numbers = {NAMES[name]: each.address for name, each in held.items()}
    numbers |= {"partial": partial.address, "counter": counter.ctypes.data, **found.numbers}
    arguments = tuple(np.int64(numbers.get(name, 0)) for name in ARGUMENTS)
    simulated.launch(build(made), blocks, made.threads, 1, made.shared_bytes, arguments)
    for each in (*held.values(), partial):
        each.check()
    case.check({name: np.array(held[name].array).reshape(shape) for name, shape in shapes.items()})
    return found
