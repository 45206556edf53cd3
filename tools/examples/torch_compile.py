"""A compiled PyTorch model: Inductor, with gradkern's fused norms and convolutions' gradients.

python tools/examples/torch_compile.py [--steps 20]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

import gradkern.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(self.first(x))
        return x + self.down(functional.gelu(self.up(self.second(x))))


torch.manual_seed(0)
model = nn.Sequential(*(Block(256) for _ in range(2)), nn.LayerNorm(256), nn.Linear(256, 10)).to(device)
compiled = torch.compile(model, backend="gradkern")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, labels = torch.randn(2048, 256, device=device), torch.randint(10, (2048,), device=device)


def step() -> torch.Tensor:
    optimizer.zero_grad()
    loss = functional.cross_entropy(compiled(x), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


gradkern.torch.tune(step)
for _ in range(steps):
    loss = step()
print(f"loss after {steps} steps: {loss.item():.4f}")
print(gradkern.torch.report())
