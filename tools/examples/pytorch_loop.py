"""A PyTorch training loop with gradkern's gradients: two lines before it, and nothing else changes.

python tools/examples/pytorch_loop.py [--steps 20]
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

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.BatchNorm2d(64), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10),
).to(device)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = torch.randn(64, 3, 32, 32, device=device), torch.randint(10, (64,), device=device)


def step() -> torch.Tensor:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


gradkern.torch.enable()  # backward passes of norms, convolutions, GELU and softmax are gradkern's
gradkern.torch.tune(step, repeats=3)  # times whole steps; what makes them no shorter stays PyTorch's

for number in range(steps):
    loss = step()
    if number % 10 == 0 or number == steps - 1:
        print(f"step {number}: loss {loss.item():.4f}")
print(gradkern.torch.report())
