"""timm's batch norm with an activation, by `batch_norm_act`. Imported where timm is."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from timm.layers.norm_act import BatchNormAct2d  # pyright: ignore[reportMissingImports]

from gradkern.torch.functional.norm_activation import batch_norm_act

__all__ = ["JoinedBatchNormAct2d"]


class JoinedBatchNormAct2d(BatchNormAct2d):
    """Its modules `drop` and `act` are not called in training."""

    activation: str
    activation_alpha: float = 0.01

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        own: Any = self  # timm declares no types of these
        mean, variance = (own.running_mean, own.running_var) if own.track_running_stats else (None, None)
        if own.track_running_stats and own.num_batches_tracked is not None:
            own.num_batches_tracked.add_(1)
        statistics = (mean, variance, own.weight, own.bias)
        how = self.activation, None, self.activation_alpha
        return batch_norm_act(x, *statistics, True, own.momentum, own.eps, *how)
