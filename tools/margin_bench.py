#!/usr/bin/env python3
"""What gradients take beside a kernel of others that holds multiprocessors, as NCCL's do, by SM margin.

    tools/margin_bench.py                         margins 0, 16, 24 and 32, each in a process of its own
    tools/margin_bench.py --margins 0,24 --json margin.json

A cell is the median of five, in microseconds of the device: alone with a cold L2, and beside so many blocks that hold a
multiprocessor each for 2.5 ms on another stream. A cooperative launch that is planned for all multiprocessors waits for
them; one that leaves a margin of as many does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from markdown_table import table
from needs import require_gpu

MARGINS, HELD, HOLD_MS = (0, 16, 24, 32), (0, 16, 24), 2.5
_MARK = "margin_bench: "


def gradients() -> dict[str, tuple[str, Callable[[], Any]]]:
    """By what they are of: the kernel and its grid, and a call with everything prepared."""
    import torch  # pyright: ignore[reportMissingImports]

    import gradkern

    def random(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randn(shape, device="cuda").to(dtype)

    def images(*shape: int) -> Any:
        return random(*shape).to(memory_format=torch.channels_last)

    def statistics_of(count: int, *more: int) -> tuple[Any, Any]:
        return random(count, *more, dtype=torch.float32), torch.rand(count, *more, device="cuda") + 0.5

    def rows(count: int, columns: int) -> tuple[Any, ...]:
        return random(count, columns), random(count, columns), random(columns), *statistics_of(count, 1)

    def channels(*shape: int) -> tuple[Any, ...]:
        return images(*shape), images(*shape), random(shape[1], dtype=torch.float32), *statistics_of(shape[1])

    cases: dict[str, tuple[Any, tuple[Any, ...], list[str] | None]] = {
        "layer norm 16384x1024": ("LayerNormalizationGrad", rows(16384, 1024), None),
        "layer norm 8192x8192": ("LayerNormalizationGrad", rows(8192, 8192), None),
        "layer norm 2048x32768": ("LayerNormalizationGrad", rows(2048, 32768), None),
        "batch norm 128x256x28x28": ("BatchNormalizationGrad", channels(128, 256, 28, 28), None),
        "batch norm 128x64x112x112": ("BatchNormalizationGrad", channels(128, 64, 112, 112), None),
        "bias-GELU 16384x4096": (
            "BiasGeluGrad_dX",
            (random(16384, 4096), random(16384, 4096), random(4096)),
            ["dX", "dB"],
        ),
    }
    found = {}
    for name, (operator, inputs, outputs) in cases.items():
        plan: Any = gradkern.prepare(operator, *inputs, outputs=outputs)
        grids = [launch.grid for launch in getattr(plan.plan, "launches", ())]
        found[name] = f"{plan.kernel} {grids}", lambda plan=plan, inputs=inputs: plan(*inputs)
    return found


class Holder:
    """Blocks that hold multiprocessors on a stream of their own, each all the shared memory of one."""

    def __init__(self) -> None:
        import torch  # pyright: ignore[reportMissingImports]
        from numba import cuda

        from gradkern.cuda.compile import compile_kernel
        from gradkern.cuda.device import get_device
        from gradkern.cuda.launch import Kernel

        def kernel(naps: int) -> None:
            if cuda.threadIdx.x == 0:
                while naps > 0:
                    cuda.nanosleep(1000)  # pyright: ignore[reportCallIssue]
                    naps -= 1

        device = get_device(0)
        self._kernel = Kernel(compile_kernel(kernel, 1, device.capability, 128), device, device.shared_bytes)
        self._stream = torch.cuda.Stream()
        self._naps = round(1000 * HOLD_MS)

    def hold(self, blocks: int) -> None:
        from gradkern.cuda.launch import Launch

        Launch(self._kernel, blocks, 128, [self._naps], (0,))((self._naps,), self._stream.cuda_stream)
        time.sleep(3e-4)  # till they have begun


def measured() -> dict[str, dict[str, Any]]:
    """In this process, with its margin."""
    import torch  # pyright: ignore[reportMissingImports]

    holder = Holder()
    holder.hold(1)  # once: a first launch waits for what runs
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def once(call: Callable[[], Any], blocks: int) -> float:
        flush.zero_()
        torch.cuda.synchronize()
        if blocks:
            holder.hold(blocks)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return 1e3 * start.elapsed_time(end)

    found: dict[str, dict[str, Any]] = {}
    for name, (kernel, call) in gradients().items():
        call()
        us = {str(blocks): statistics.median(once(call, blocks) for _ in range(5)) for blocks in HELD}
        found[name] = {"kernel": kernel, "us": us}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--margins", type=lambda text: [int(each) for each in text.split(",")], default=list(MARGINS))
    parser.add_argument("--json", type=Path, help="write all that was measured")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    require_gpu(parser)
    if options.here:
        print(_MARK + json.dumps(measured()))
        return 0
    rows: list[dict[str, Any]] = []
    for margin in options.margins:
        environment = {**os.environ, "GRADKERN_SM_MARGIN": str(margin)}
        done = subprocess.run(
            [sys.executable, __file__, "--here"], env=environment, capture_output=True, text=True, check=False
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
        if not lines:
            print(done.stderr.strip() or f"exit status {done.returncode}", file=sys.stderr)
            return 1
        found = json.loads(lines[0].removeprefix(_MARK))
        rows += [{"margin": margin, "gradient": name, **each} for name, each in found.items()]
    head = ["margin", "gradient", "alone, us", *(f"beside {blocks}" for blocks in HELD if blocks), "kernel and grid"]
    cells = [
        [str(row["margin"]), row["gradient"], *(f"{us:.1f}" for us in row["us"].values()), row["kernel"]]
        for row in rows
    ]
    print(table(head, cells))
    if options.json is not None:
        from results_file import machine, write

        write(options.json, json.dumps({"machine": machine(True), "rows": rows}, indent=1).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
