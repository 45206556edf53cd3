#!/usr/bin/env python3
"""What calls of gradkern's operators from compiled code cost the host, beside launches of Triton's kernels there.

    tools/compiled_call_bench.py --json compiled_calls.json

A small model with the fusions of real ones is compiled and takes some steps. Then its calls are made again, one over
and over, on tensors so small that the GPU is never behind: microseconds from call to return, the median over batches.
Results of both kinds have their memory by then, as Inductor's code makes it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import results_file
import torch  # pyright: ignore[reportMissingImports]
from gpu_timing import host_seconds
from markdown_table import table
from needs import require_gpu
from torch import nn  # pyright: ignore[reportMissingImports]

from gradkern.torch.native import sites

Row = dict[str, Any]


class Layers(nn.Module):
    """Patches, a group norm, and layers with residuals."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, width, 4, 4), nn.GroupNorm(4, width)
        self.inner, self.outer, self.norm = nn.Linear(width, 512), nn.Linear(512, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.silu(self.first(self.patches(x))).flatten(2).transpose(1, 2).contiguous()
        for _ in range(3):
            x = self.norm(x + self.outer(nn.functional.gelu(self.inner(x))))
        return x


def recorded(step: Callable[[], None]) -> dict[tuple[str, str], Callable[[], Any]]:
    """A call of every operator of gradkern's in a step and of every kernel of Triton's, by whose it is and its name."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner  # pyright: ignore[reportMissingImports]

    found: dict[tuple[str, str], Callable[[], Any]] = {}
    launch = CachingAutotuner.run
    known = {site: site.call for site in sites.living() if site.call is not None}

    def noted(site: Any, call: Any) -> Callable[..., Any]:
        def answer(*tensors: torch.Tensor) -> Any:
            found["gradkern", str(site.by_python)] = lambda: call(*tensors)
            return call(*tensors)

        return answer

    def launched(kernel: Any, *args: Any, **named: Any) -> Any:
        found["Triton", kernel.fn.__name__] = lambda: kernel.run(*args, **named)
        return launch(kernel, *args, **named)

    for site, call in known.items():
        site.call = noted(site, call)
    with patch.object(CachingAutotuner, "run", launched):
        step()
    for site, call in known.items():
        site.call = call
    return found


def measured(count: int) -> list[Row]:
    model, x = Layers().cuda(), torch.randn(8, 3, 64, 64, device="cuda")
    run = torch.compile(model, backend="gradkern", options={"gradkern": True})

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x).square().mean()
        loss.backward()

    for _ in range(6):
        step()
    found = sorted(recorded(step).items())
    return [{"of": whose, "call": name, "us": host_seconds(call, count) * 1e6} for (whose, name), call in found]


def shown(rows: list[Row]) -> str:
    return table(["call", "of", "us"], [[each["call"], each["of"], f"{each['us']:.1f}"] for each in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300, help="of each, in batches (%(default)s)")
    parser.add_argument("--json", type=Path, help="write all that was measured")
    options = parser.parse_args()
    if options.calls < 1:
        parser.error(f"argument --calls: expected 1 or more; got {options.calls}")
    require_gpu(parser, "")
    rows = measured(options.calls)
    print(shown(rows))
    if options.json is not None:
        results = {"machine": results_file.machine(True), "rows": rows}
        results_file.write(options.json, json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
