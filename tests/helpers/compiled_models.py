"""Small networks for the backend of torch.compile, and a step under Inductor in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A residual block, written in one of several forms, with a convolution in the shortcut where channels change."""

    def __init__(self, channels: int, out: int, config: str) -> None:
        super().__init__()
        self.config = config
        self.one, self.norm_one = nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.two, self.norm_two = nn.Conv2d(out, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=config == "in place")
        short = [nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.short = nn.Sequential(*(short if channels != out else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self._activated(self.norm_one(self.one(x)))
        y = self.norm_two(self.two(y))
        identity = self.short(x)
        if self.config == "in place":
            y += identity
        elif self.config == "functions":
            y = torch.add(identity, y)
        else:
            y = y.add(identity) if self.config == "methods" else y + identity
        return self._activated(y)

    def _activated(self, y: torch.Tensor) -> torch.Tensor:
        if self.config == "functions":
            return functional.relu(y)
        return y.relu_() if self.config == "methods" else self.relu(y)


class Transformer(nn.Module):
    """Two blocks of mixing and a linear layer each, as a GPT has them, with the norm of one's choice."""

    def __init__(self, width: int, norm: Callable[[int], nn.Module], words: int = 11, length: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.positions = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width))
        self.mix = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.up = nn.ModuleList([nn.Linear(width, 2 * width) for _ in range(2)])
        self.down = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(2)])
        self.norms = nn.ModuleList([norm(width) for _ in range(5)])
        self.gelus = nn.ModuleList([nn.GELU(), nn.GELU("tanh")])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.positions
        for place in range(2):
            x = x + self.mix[place](self.norms[2 * place](x)).cumsum(1)
            y = self.gelus[place](self.up[place](self.norms[2 * place + 1](x)))
            x = x + self.down[place](y)
        return self.norms[4](x)


def environment(caches: Path) -> dict[str, str]:
    """Of a process with PyTorch's caches in this folder, that compiles without processes of its own."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "TORCHINDUCTOR_CACHE_DIR": str(caches)}
    return {**os.environ, **paths, "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def in_a_process(caches: Path) -> dict[str, Any]:
    """What a step of a block found, in a process of its own with PyTorch's caches in this folder."""
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment(caches), capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _main() -> None:
    from torch._dynamo.utils import counters

    import gradkern.torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Block(4, 4, "in place")
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True})
    compiled(torch.randn(3, 4, 5, 5)).sin().mean().backward()
    caches = counters["aot_autograd"]
    found = {
        "hits": caches["autograd_cache_hit"],
        "misses": caches["autograd_cache_miss"],
        "bypasses": caches["autograd_cache_bypass"],
        "found": Counter(each.fusion for each in gradkern.torch.report().compiled if not each.reason),
        "gradients": [each.grad.flatten().tolist() for each in model.parameters() if each.grad is not None],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
