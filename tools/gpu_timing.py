"""Timing on a GPU as the benchmarks do it: device events, and the limit of the memory measured beside it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from gradkern.contract.samples import values_of
from gradkern.contract.schema import Example, Operator, shape_of

FLUSH_BYTES = 256 << 20  # several times the L2 of any GPU so far
HOST_BATCH_SECONDS = 0.02  # of a batch of calls, on the device
_ON_GPU: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "any": lambda normal: normal,
    "positive": lambda normal: normal.abs().clamp(0.5, 2),
    "nonzero": lambda normal: normal.abs().clamp(0.5, 2),
    "probability": lambda uniform: uniform,
    "log_probability": lambda uniform: uniform.clamp(0.01).log(),
}
"""An input's values, as the contract names them, of random numbers."""


def inputs_of(operator: Operator, types: Mapping[str, str], example: Example) -> dict[str, torch.Tensor]:
    """What samples.inputs_of gives, made on the GPU: a large array takes seconds to come from the host."""
    random, on_host = torch.Generator("cuda").manual_seed(0), np.random.default_rng(0)
    made = {}
    for each in operator.inputs_of(example.axes, example.attributes):
        shape, dtype = shape_of(each.shape, example.axes), types[each.type]
        if "float" not in dtype or each.values not in _ON_GPU:
            values = values_of(each, on_host, shape, {**example.attributes, **example.axes}, dtype)
            half = dtype == "bfloat16"  # NumPy's is another package's, which PyTorch does not know
            made[each.name] = torch.from_numpy(values.view(np.int16) if half else values).cuda()
            made[each.name] = made[each.name].view(torch.bfloat16) if half else made[each.name]
            continue
        make = torch.rand if "probability" in each.values else torch.randn
        values = _ON_GPU[each.values](make(shape, device="cuda", generator=random))
        made[each.name] = values.to(getattr(torch, dtype))
    return made


def device_times(calls: Mapping[str, Callable[[], Any]], seconds: float, cold: bool = True) -> dict[str, list[float]]:
    """Times in seconds of each call, taken in turn. Before each the L2 is overwritten; where it shall not be cold, the
    same call is made instead.

    An event before and one after: an empty kernel takes about 4 microseconds so, in every library alike.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda") if cold else None
    ahead = {name: _ahead(call) for name, call in calls.items()}
    rough = sum(min(_once(call, flush, ahead[name]) for _ in range(3)) for name, call in calls.items())
    repeats = max(7, min(200, int(seconds / max(rough, 1e-5))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(_once(call, flush, ahead[name]))
    return times


def _ahead(call: Callable[[], Any]) -> int:
    """Clock cycles the device must be kept waiting so that the host has enqueued a call before the first event."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    host = time.perf_counter() - start
    torch.cuda.synchronize()
    return int(max(2e-4, 3 * host) * 2e9)


def _once(call: Callable[[], Any], flush: torch.Tensor | None, ahead: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(ahead)
    if flush is None:
        call()
    else:
        flush.zero_()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


@cache
def limit(nbytes: int, cold: bool = True) -> dict[str, float]:
    """What the memory does with as many bytes, in GB/s: c = a + b (two reads, one write), and a copy."""
    third = max(nbytes // 3 // 2, 1)
    a, b, c = (torch.zeros(third, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    half = max(nbytes // 2, 1)
    source, target = (torch.zeros(half, dtype=torch.uint8, device="cuda") for _ in range(2))
    calls = {"add": lambda: torch.add(a, b, out=c), "copy": lambda: target.copy_(source)}
    times = device_times(calls, 0.1, cold)
    moved = {"add": 6 * third, "copy": 2 * half}
    return {name: moved[name] / statistics.median(each) / 1e9 for name, each in times.items()}


def host_seconds(call: Callable[[], Any], count: int = 300) -> float:
    """What a warm call costs the host, in seconds: the median over batches short enough not to fill the queue.

    Each batch waits for the device: of calls that keep it busy for long there are fewer.
    """
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    size = max(1, min(count // 15, int(HOST_BATCH_SECONDS / (time.perf_counter() - start))))
    times = []
    for _ in range(15):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(size):
            call()
        times.append((time.perf_counter() - start) / size)
    torch.cuda.synchronize()
    return statistics.median(times)


def machine() -> dict[str, Any]:
    """The GPU, its driver and what the results depend on."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "driver": _driver(),
    }


def _driver() -> str:
    import subprocess

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 else "unknown"
