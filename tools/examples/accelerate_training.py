"""A loop of Hugging Face's Accelerate: gradkern needs its two lines, and a compiled model is compiled before `prepare`.

python tools/examples/accelerate_training.py [--steps 20] [--compile]     # pip install accelerate
accelerate launch tools/examples/accelerate_training.py     # several GPUs
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import gradkern.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--compile", action="store_true", help="by torch.compile with gradkern's backend")
options = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(64, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.Linear(256, 10)
)
if options.compile:  # Accelerate's own option knows a fixed list of backends
    model.compile(backend="gradkern")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(4096, 64), torch.randint(10, (4096,)))

accelerator = Accelerator()
model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=1024, shuffle=True))


def step(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), labels)
    accelerator.backward(loss)
    optimizer.step()
    return loss.detach()


gradkern.torch.enable()
done = 0
while done < options.steps:
    for batch in batches:
        # every process tunes in the same step, the second: the first process searches
        loss = gradkern.torch.tune(lambda batch=batch: step(*batch)) if done == 1 else step(*batch)
        done += 1
        if done == options.steps:
            break
accelerator.print(f"loss after {done} steps: {loss.item():.4f}")
accelerator.print(gradkern.torch.report())
