"""DistributedDataParallel with batch norms over all processes' images; with --fsdp, FSDP2.

torchrun --nproc-per-node 2 tools/examples/distributed.py [--fsdp] [--steps 20]     # on CPUs by gloo where no GPU is
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import gradkern.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fsdp", action="store_true")
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()

rank, cuda = int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
device = torch.device("cuda", rank) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")

torch.manual_seed(0)  # the same model everywhere, and images of each process's own
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.LayerNorm(32), nn.Linear(32, 10),
).to(device)  # fmt: skip
model = gradkern.torch.SyncBatchNorm.convert_sync_batchnorm(model)
model = fully_shard(model) if options.fsdp else DistributedDataParallel(model, device_ids=[rank] if cuda else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator(device).manual_seed(rank)
images = torch.randn(16, 3, 32, 32, device=device, generator=generator)
labels = torch.randint(10, (16,), device=device, generator=generator)


def step() -> torch.Tensor:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


gradkern.torch.enable()
gradkern.torch.tune(step, repeats=3)  # every process, with the same repeats: the first one searches
for _ in range(options.steps):
    loss = step()
dist.all_reduce(loss)
if rank == 0:
    print(f"mean loss of {dist.get_world_size()} processes: {loss.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
