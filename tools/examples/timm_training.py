"""A network of timm, accelerated in place: its batch norms take in their activations.

python tools/examples/timm_training.py [--steps 20] [--size 224]     # pip install timm
"""

import argparse

import timm
import torch
from torch.nn import functional

import gradkern.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--size", type=int, default=224, help="pixels a side")
options = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
model = timm.create_model("resnet18", num_classes=10).to(device, memory_format=torch.channels_last)
gradkern.torch.accelerate(model)  # in place; parameters and keys of state_dict stay as they are
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images = torch.randn(4, 3, options.size, options.size, device=device).to(memory_format=torch.channels_last)
labels = torch.randint(10, (4,), device=device)

gradkern.torch.enable()
for number in range(options.steps):
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    if number == 0:
        gradkern.torch.tune(lambda: functional.cross_entropy(model(images), labels).backward())
print(f"loss after {options.steps} steps: {loss.item():.4f}")
