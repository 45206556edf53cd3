#!/usr/bin/env python3
"""Train a small PyTorch network on handwritten digits in several processes, on GPUs or a laptop's CPU.

    torchrun --nproc-per-node 2 tools/train_digits_ddp.py

DistributedDataParallel averages the gradients, gradkern computes those of the convolutions, and
gradkern.torch.SyncBatchNorm normalises over the batches of all processes: however many there are, the network is
trained by the same steps. The exit code is 0 where it knows 95 of 100 digits that were held out, else 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]
from train_digits import load_digits

import gradkern.torch

BATCH, TARGET = 64, 0.95  # digits of all processes together


def network() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip
    return gradkern.torch.SyncBatchNorm.convert_sync_batchnorm(made)


def main() -> int:
    """Train; the first process reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="passes over the training digits (%(default)s)")
    epochs = parser.parse_args().epochs
    if not dist.is_torchelastic_launched():
        parser.error("start it with torchrun, which says how many processes there are")
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))

    digits = load_digits()
    parts: Any = digits.train_images, digits.train_labels, digits.test_images, digits.test_labels
    images, labels, test_images, test_labels = (torch.from_numpy(each).to(device) for each in parts)
    images, test_images = (each.movedim(-1, 1).contiguous() for each in (images, test_images))
    model = DistributedDataParallel(network().to(device), device_ids=[device] if kind == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    gradkern.torch.enable("conv", devices=kind, plan="now")
    right = 0.0
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        model.train()
        for batch in order.split(BATCH):
            mine = batch[rank::size].to(device)  # of the last batch perhaps fewer than others have, or none
            loss = nn.functional.cross_entropy(model(images[mine]), labels[mine], reduction="sum")
            optimizer.zero_grad()
            (loss * size / len(batch)).backward()  # as gradients are averaged over the processes
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = float((model(test_images).argmax(1) == test_labels).double().mean())
        if rank == 0:
            print(f"epoch {epoch + 1}: {100 * right:.1f} of 100 digits that were held out", flush=True)
    if rank == 0:
        report = gradkern.torch.report()
        print(f"{size} processes on {kind}; gradkern computed {report.taken} gradients of convolutions in the first")
    dist.destroy_process_group()
    return 0 if right >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
