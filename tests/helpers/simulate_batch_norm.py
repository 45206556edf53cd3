"""Run both passes of batch norm's kernel under the CUDA simulator, in memory that shows every stray read and write."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gradkern.kernels.channels.streaming_config import StreamingConfig, second_pass
from gradkern.kernels.channels.streaming_kernel import build
from gradkern.kernels.channels.streaming_tiling import ARGUMENTS, Dimensions, Tiling, best_tiling, fitted
from gradkern.ops.batch_norm.cuda.parts import NAMES
from gradkern.strides import merged_axes
from helpers import simulated
from helpers.batch_norm import OUTPUTS, Case
from helpers.guarded import Guarded


def simulate(
    case: Case,
    width: int,
    blocks: int = 2,
    outputs: tuple[str, ...] = OUTPUTS,
    offset: int = 0,
    in_place: str = "",
    last: bool = False,
    share: tuple[np.ndarray, np.ndarray, int] | None = None,
    counts: tuple[int, ...] = (),
    **config: Any,
) -> dict[str, np.ndarray]:
    """The results of a case, whose data is in C order or, if `last`, in channels-last order.

    share: the sums dScale and dBias, and of how many elements of a channel, from which
    the second pass alone makes dX; counts: numbers in memory to be added up in place of that number.
    """
    X, parameter = case.inputs["X"], case.inputs["Scale"]
    order = (0, *range(2, X.ndim), 1) if last else tuple(range(X.ndim))
    kept = [axis == 1 for axis in order]
    dims = Dimensions.of(merged_axes([X.shape[axis] for axis in order], kept))
    statistic = case.inputs["saved_mean"].dtype.name
    made = StreamingConfig(
        X.dtype.name, parameter.dtype.name, statistic, frozenset(), None, width,
        columns=offset == 0, **{"threads": 32, **config},
    )  # fmt: skip
    made = replace(made, outputs=frozenset(NAMES[name] for name in outputs))
    gradient = replace(made, outputs=frozenset({"dX"}), centred=True, counted=bool(counts))
    if share is not None:
        passes = [gradient]
    elif "dX" in outputs:
        passes = [replace(made, outputs=made.outputs - {"dX"}, totals=True)]
    else:
        passes = [made]
    walks: list[Tiling] = []
    for n, each in enumerate(passes):
        fit = fitted(each, dims)
        walks.append(best_tiling(fit, dims, blocks))
        passes[n] = replace(fit, has_outer=prod(walks[n].outer_sizes) > 1)

    held = {}
    for name, array in case.inputs.items():
        flat = array.transpose(order).ravel() if name in ("dY", "X") else array.ravel()
        held[name] = Guarded(flat.shape, flat.dtype, offset * flat.itemsize)
        held[name].array[...] = flat
        if name != in_place:
            held[name].freeze()
    for name in outputs:
        kind = case.kind(name)
        held[name] = Guarded((prod(case.shape(name)),), kind, offset * kind.itemsize)
    if in_place:
        held["dX"] = held[in_place]
    compute = np.dtype(made.compute)
    totals = [Guarded((dims.channels,), compute) for _ in range(2)]
    elements = X.size // X.shape[1]
    if share is not None:
        for total, given in zip(totals, share, strict=False):
            total.array[...] = given
        elements = len(counts) or share[2]
    told = Guarded((len(counts),), compute)
    told.array[...] = counts
    told.freeze()
    partial = Guarded((walks[0].partial_rows * passes[0].column_sums.partial_bytes(dims.channels),), np.uint8)
    counter = np.zeros(64, np.uint32)
    addresses = {NAMES[name]: each.address for name, each in held.items()}
    addresses |= {"scale_total": totals[0].address, "bias_total": totals[1].address, "partial": partial.address}
    addresses |= {"counts": told.address, "counter": counter.ctypes.data, "elements": elements}

    def launch(first: StreamingConfig, found: Tiling, then: StreamingConfig | None = None) -> None:
        numbers = {**addresses, **found.numbers}
        arguments = tuple(np.int64(numbers.get(name, 0)) for name in ARGUMENTS)
        simulated.launch(build(first, then), blocks, first.threads, 1, first.shared_bytes, arguments)

    launch(passes[0], walks[0], second_pass(passes[0]) if "dX" in outputs and share is None else None)
    for guarded in (*held.values(), *totals, told, partial):
        guarded.check()
    results = {}
    for name in outputs:
        flat = np.array(held[name].array)
        if name == "dX":
            results[name] = flat.reshape([X.shape[axis] for axis in order]).transpose(np.argsort(order))
        else:
            results[name] = flat
    return results
