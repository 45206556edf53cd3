"""Lightning's Trainer with gradkern's callback: it enables, tunes for the second batch, and logs the report.

python tools/examples/lightning_training.py [--steps 20]     # pip install lightning
"""

import argparse

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gradkern.torch.integrations.lightning import GradkernCallback

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.LayerNorm(32), nn.Linear(32, 10),
        )  # fmt: skip

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        images, labels = batch
        loss = functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
data = TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(10, (256,)))
trainer = lightning.Trainer(
    max_steps=steps, callbacks=[GradkernCallback()], logger=False, enable_checkpointing=False,
    enable_progress_bar=False,
)  # fmt: skip
trainer.fit(Classifier(), DataLoader(data, batch_size=32))
print(f"loss after {trainer.global_step} steps: {trainer.callback_metrics['loss']:.4f}")
