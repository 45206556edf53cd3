"""One row of a benchmark: gradkern and other libraries on the same arrays, timed in turns."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from bench_rows import Row
from memory_orders import in_order
from peers import PEERS

import gradkern
from gradkern.cli.sizes import named
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example

__all__ = ["measured"]

SETTLE_SECONDS, BLOCK_SECONDS = 0.03, 0.1


def measured(
    name: Any,
    types: Mapping[str, str],
    example: Example,
    outputs: Sequence[str],
    order: str = "C",
    *,
    provider: str | None = None,
    peers: Sequence[str] = (),
    seconds: float = 1.0,
    cold: bool = True,
    host: bool = True,
) -> Row:
    """A row of one size.

    order     a memory order of memory_orders.ORDERS
    peers     libraries of peers.PEERS; one that cannot is left out
    seconds   to spend on the row, at least
    cold      of a GPU: the L2 cache is overwritten before each run; else it has what the run before left there
    host      of a GPU: time the host's part of a call, too
    """
    outputs = tuple(outputs)
    operator = gradkern.operators()[name]
    arguments: dict[str, Any] = {"outputs": outputs, "provider": provider, **example.attributes}
    gpu = _gpu() if provider == "cuda" else None
    arrays: dict[str, Any] = (
        gpu.inputs_of(operator, types, example)
        if gpu
        else inputs_of(operator, types, example, np.random.default_rng(0))
    )
    arrays = {key: in_order(array, order) for key, array in arrays.items()}
    plan = gradkern.prepare(name, **arrays, **arguments)
    calls: dict[str, Callable[[], Any]] = {"gradkern": lambda: gradkern.run(name, **arrays, **arguments)}
    for peer in peers:
        try:
            call = PEERS[peer](name, arrays, example.attributes, outputs)
            if call is not None:
                call()
                calls[peer] = call
        except Exception as error:  # a peer that cannot is left out, and the others are timed
            print(f"{name} by {peer}: {type(error).__name__}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
    times = gpu.device_times(calls, seconds, cold) if gpu else _in_turn(calls, seconds)
    taken = statistics.median(times["gradkern"])
    flops = _flops(name, plan.call)
    row: Row = {
        "operator": name,
        "types": dict(types),
        "size": named(example) if order == "C" else f"{named(example)} {order}",
        "order": None if order == "C" else order,
        "axes": dict(example.axes),
        "outputs": outputs,
        "provider": plan.provider,
        "kernel": plan.kernel,
        "bytes": plan.bytes,
        "scratch": plan.scratch,
        "microseconds": taken * 1e6,
        "spread": _spread(times["gradkern"]),
        "gigabytes_per_second": plan.bytes / taken / 1e9,
        "gigaflops_per_second": flops / taken / 1e9 if flops else None,
    }
    row["peers"] = {peer: statistics.median(each) * 1e6 for peer, each in times.items() if peer != "gradkern"}
    if gpu:
        limit = gpu.limit(plan.bytes, cold)
        row["limit"] = limit
        row["share_of_limit"] = row["gigabytes_per_second"] / limit["add"]
    if gpu and host:
        out = gradkern.run(name, **arrays, **arguments)._asdict()
        out = {key: array for key, array in out.items() if array is not None}
        prepared = gradkern.prepare(name, **arrays, **arguments, out=out)
        row["host_microseconds"] = {each: gpu.host_seconds(call) * 1e6 for each, call in calls.items()}
        lists = {each.name: arguments[each.name] for each in operator.inputs if each.is_list and each.name in arguments}
        row["host_microseconds"]["prepared"] = gpu.host_seconds(lambda: prepared(**arrays, **lists, out=out)) * 1e6
    return row


def _gpu() -> Any:
    import gpu_timing  # needs PyTorch, whose tensors it times

    gpu_timing.torch.backends.cudnn.benchmark = True
    return gpu_timing


def _in_turn(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Times of each call, in blocks taken in turn so that what slows the machine slows all of them.

    Blocks, not single calls: for a while after a call a library's threads spin, and would take the next one's core.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 6:
        for name, call in calls.items():
            settled = time.perf_counter() + SETTLE_SECONDS
            call()
            while time.perf_counter() < settled:
                call()
            full = time.perf_counter() + BLOCK_SECONDS
            while time.perf_counter() < full:
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return times


def _flops(name: str, call: Any) -> int:
    """Multiplications and additions of the results asked for, of convolutions; 0 for operators bound by memory."""
    if not name.startswith("Conv"):
        return 0
    axes = call.axes
    windows = axes["out"] if "C_per_group" in axes else axes["spatial"]
    filters = axes["M"] * axes["C_per_group"] if "C_per_group" in axes else axes["C"] * axes["M_per_group"]
    one = 2 * axes["N"] * filters * math.prod(axes["kernel"]) * math.prod(windows)
    return one * len({"Y", "dX", "dW"} & call.outputs.keys())


def _spread(times: list[float]) -> float:
    """The distance between the quartiles, as a share of the median."""
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle
