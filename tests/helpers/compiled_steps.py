"""A small model, and its steps under Inductor as test_compile.py wants them: run by it as a script, since compiled code
belongs to a process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch.nn import functional

import gradkern.torch


class Model(torch.nn.Module):
    """A convolution, a layer norm and a GELU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 6, 3)
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.norm(self.conv(x).mean((2, 3))))


def gradients(model: torch.nn.Module, run: Any = None) -> list[torch.Tensor]:
    model.zero_grad()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    (model if run is None else run)(x).square().mean().backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


def calls() -> dict[str, int]:
    """How many calls gradkern answered, by operator."""
    return {each.op: each.taken for each in gradkern.torch.report() if each.taken}


def main(file: str) -> None:
    """Prints who answered what in each of five steps, and leaves their gradients in the file."""
    model = Model()
    run = torch.compile(model)
    answered, found = {}, {}

    def step(way: str) -> None:
        gradkern.torch.forget()
        gradients(model, run)  # the first call of a kind is PyTorch's
        found[way] = gradients(model, run)
        answered[way] = calls()

    options: Any = {"devices": "cpu", "min_bytes": 0, "plan": "now"}
    step("off")
    gradkern.torch.enable(**options)
    step("on")
    gradkern.torch.disable()
    step("off again")
    gradkern.torch.enable(**options)
    step("on again")
    torch.save(found, file)
    print(json.dumps(answered))


if __name__ == "__main__":
    main(sys.argv[1])
