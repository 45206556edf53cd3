"""A diffusion UNet of diffusers, trained on noise, compiled with gradkern's backend.

python tools/examples/diffusion_unet.py [--steps 20] [--size 64]     # pip install diffusers
"""

import argparse

import torch
from diffusers import DDPMScheduler, UNet2DModel
from torch.nn import functional

import gradkern.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--size", type=int, default=64, help="pixels a side, a multiple of 8")
options = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=options.size, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).to(device, memory_format=torch.channels_last)  # fmt: skip
compiled = torch.compile(unet, backend="gradkern")
noises = DDPMScheduler()
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
images = torch.randn(4, 3, options.size, options.size, device=device)


def step() -> torch.Tensor:
    optimizer.zero_grad()
    noise, times = torch.randn_like(images), torch.randint(1000, (len(images),), device=device)
    noisy = noises.add_noise(images, noise, times)
    with torch.autocast(device, torch.bfloat16):
        loss = functional.mse_loss(compiled(noisy, times).sample, noise)
    loss.backward()
    optimizer.step()
    return loss.detach()


gradkern.torch.tune(step)
for _ in range(options.steps):
    loss = step()
print(f"loss after {options.steps} steps: {loss.item():.4f}")
print(gradkern.torch.report())
