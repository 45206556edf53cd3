#!/usr/bin/env python3
"""What gradkern.torch.enable() costs the host: calls of PyTorch's backward kernels, taken over, declined, as they are.

    tools/override_bench.py --json overrides.json
    tools/override_bench.py --device cpu --calls 20

Microseconds from call to return, the median over blocks of calls in turns, on tensors so small that the GPU is never
behind. "declined" are calls under min_bytes, which PyTorch answers; "bare" is PyTorch's kernel behind a registration
from Python that does nothing, the least that any override from Python can cost. "native" is enable() as it is by
default, for both kinds of calls, in turns of its own with PyTorch's; the others are enable(native=False). "by machine
code" is the share of the taken ones that it answered. What they add is to PyTorch's own in the same turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import results_file
import torch  # pyright: ignore[reportMissingImports]
from needs import require_gpu
from override_table import shown

import gradkern.torch
from gradkern.torch.overrides import switch

BLOCKS, WARM = 15, 5
Row = dict[str, Any]


def calls(device: str) -> dict[str, Callable[[], Any]]:
    """By aten's name: a call with its arguments."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    aten = torch.ops.aten

    def random(*shape: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return torch.randn(shape, device=device).to(kind)

    def images(channels: int) -> torch.Tensor:
        return random(4, channels, 8, 8).to(memory_format=torch.channels_last)

    rows, other, scale, mean, rstd = random(64, 64), random(64, 64), random(64), *random(2, 64, 1, kind=torch.float32)
    long, other_long, bias, indices = random(4, 1024), random(4, 1024), random(64), torch.arange(64, device=device)
    x, dy, weight = images(16), images(16), random(16, 16, 3, 3).to(memory_format=torch.channels_last)
    wide, per_channel = torch.float32, random(4, 16, kind=torch.float32)
    statistics_of = [each.contiguous() for each in per_channel]
    mean_of_groups, rstd_of_groups, in_order = random(4, 4), random(4, 4), (dy.contiguous(), x.contiguous())
    halved, maxima = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    every = [True, True, True]
    made: dict[str, Callable[[], Any]] = {
        "native_layer_norm_backward": lambda: aten.native_layer_norm_backward(
            rows, other, [64], mean, rstd, scale, bias, every
        ),
        "gelu_backward": lambda: aten.gelu_backward(long, other_long),
        "_softmax_backward_data": lambda: aten._softmax_backward_data(rows, other, 1, dtype),
        "embedding_dense_backward": lambda: aten.embedding_dense_backward(rows, indices, 64, -1, False),
        "native_batch_norm_backward": lambda: aten.native_batch_norm_backward(
            dy, x, statistics_of[0], None, None, statistics_of[1], statistics_of[2], True, 1e-5, every
        ),
        "convolution_backward": lambda: aten.convolution_backward(
            dy, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
        ),
        "native_group_norm_backward": lambda: aten.native_group_norm_backward(
            *in_order, mean_of_groups, rstd_of_groups, None, 4, 16, 64, 4, [True, False, False]
        ),
        "max_pool2d_with_indices_backward": lambda: aten.max_pool2d_with_indices_backward(
            halved, x, [2, 2], [2, 2], [0, 0], [1, 1], False, maxima
        ),
        "avg_pool2d_backward": lambda: aten.avg_pool2d_backward(halved, x, [2, 2], [2, 2], [0, 0], False, True, None),
        "upsample_bilinear2d_backward": lambda: aten.upsample_bilinear2d_backward(
            dy, [8, 8], [4, 16, 4, 4], False, None, None
        ),
    }
    if device == "cuda":
        made["_fused_rms_norm_backward"] = lambda: aten._fused_rms_norm_backward(
            rows, other, [64], rstd.to(wide), scale, [True, True]
        )
    return made


class Bare:
    """PyTorch's own kernel, registered from Python in front of itself."""

    def __init__(self, name: str, key: str) -> None:
        self._name, self._key = name, key
        self._library: Any = None

    def install(self) -> None:
        take_out()
        self._kernel = torch.library.get_kernel(f"aten::{self._name}", self._key)
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it replaces a kernel is what is wanted
            self._library.impl(self._name, self._kernel.call_boxed, self._key, with_keyset=True, allow_override=True)

    def remove(self) -> None:
        if self._library is not None:
            self._library._destroy()
            self._library = None


def take_out() -> None:
    """Let there be nothing in front of PyTorch's kernels: `disable` leaves what hands calls on."""
    gradkern.torch.disable()
    for kernel in switch._kernels():
        kernel.override.remove()


def ways_of(device: str, native: bool) -> dict[str, Callable[[], None]]:
    """What enables each way, by its name."""
    taken, declined = ("native", "native declined") if native else ("taken", "declined")

    def enabled(least: int) -> Callable[[], None]:
        plan = "tune" if least else "now"
        return lambda: gradkern.torch.enable(devices=device, min_bytes=least, plan=plan, native=native)

    return {"torch": take_out, taken: enabled(0), declined: enabled(1 << 60)}


def measured(name: str, call: Callable[[], Any], device: str, count: int, native: bool) -> dict[str, list[float]]:
    """Microseconds of a call of one operator in each block, by way."""
    bare = Bare(name, device.upper())
    ways = ways_of(device, native) | ({} if native else {"bare": bare.install})
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    times: dict[str, list[float]] = {way: [] for way in ways}
    for block in range(BLOCKS + 1):
        for way, choose in ways.items():
            choose()
            for _ in range(WARM):
                call()
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                call()
            passed = time.perf_counter() - start
            synchronize()
            bare.remove()
            if block:  # the first one plans
                times[way].append(passed / count * 1e6)
    take_out()
    return times


def row(name: str, by_python: dict[str, list[float]], natively: dict[str, list[float]], count: int) -> Row:
    times = {**natively, **by_python, "torch beside native": natively["torch"]}
    kinds = [each for each in gradkern.torch.report() if each.op == name]
    share = sum(each.natively for each in kinds) / ((BLOCKS + 1) * (count + WARM))
    why = next((each.by_python for each in kinds if each.by_python), "")
    return {
        "operator": name,
        **{way: statistics.median(found) for way, found in times.items()},
        "by machine code": share,
        "by Python": why,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--calls", type=int, default=100, help="in a block (%(default)s)")
    parser.add_argument("--json", type=Path, help="write all that was measured")
    options = parser.parse_args()
    if options.calls < 1:
        parser.error(f"argument --calls: expected 1 or more; got {options.calls}")
    if options.device == "cuda":
        require_gpu(parser, "--device cpu measures the CPU")
    if options.device == "cpu":
        torch.set_num_threads(1)  # waking others is not what is measured
    every = calls(options.device)
    by_python, natively = (  # what machine code has been registered for stays so: Python's turn comes first
        {name: measured(name, call, options.device, options.calls, native) for name, call in every.items()}
        for native in (False, True)
    )
    rows = [row(name, by_python[name], natively[name], options.calls) for name in every]
    print(shown(rows))
    for each in rows:
        if each["by Python"]:
            print(f"{each['operator']}: Python answers: {each['by Python']}")
    if options.json is not None:
        results = {"machine": results_file.machine(options.device == "cuda"), "rows": rows}
        results_file.write(options.json, json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
