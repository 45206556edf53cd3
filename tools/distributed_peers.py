"""What SyncBatchNorm is compared with: the local batch norm, PyTorch's, and Apex's formula by PyTorch's kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from distributed_tables import SYMMETRIC
from torch import nn  # pyright: ignore[reportMissingImports]

from gradkern.torch import SyncBatchNorm

__all__ = ["PEERS", "all_gather"]

all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class _ApexFormula(torch.autograd.Function):
    """apex.parallel.SyncBatchNorm's two messages: its statistics, merge and sums are kernels like those of PyTorch.

    As in Apex no part may be empty, and no mask is looked at.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, *rest: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        running_mean, running_var, momentum, eps = rest
        channels = x.shape[1]
        mean, inv_std = torch.batch_norm_stats(x, eps)
        count = torch.full((1,), x.numel() // channels, dtype=mean.dtype, device=x.device)
        mine = torch.cat((mean, inv_std, count))
        every = mine.new_empty(dist.get_world_size(), 2 * channels + 1)
        all_gather(every, mine)
        means, inverses, counts = every.split((channels, channels, 1), 1)
        counts = counts.reshape(-1)
        mean, inv_std = torch.batch_norm_gather_stats_with_counts(
            x, means, inverses, running_mean, running_var, momentum, eps, counts
        )
        ctx.save_for_backward(x, weight, mean, inv_std, counts.to(torch.int32))
        return torch.batch_norm_elemt(x, weight, bias, mean, inv_std, eps)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, mean, inv_std, counts = ctx.saved_tensors
        sum_dy, sum_dy_xmu, dweight, dbias = torch.batch_norm_backward_reduce(
            grad, x, mean, inv_std, weight, True, True, True
        )
        sums = torch.cat((sum_dy, sum_dy_xmu))
        dist.all_reduce(sums)
        sum_dy, sum_dy_xmu = sums.split(x.shape[1])
        dx = torch.batch_norm_backward_elemt(grad, x, mean, inv_std, weight, sum_dy, sum_dy_xmu, counts)
        return dx, dweight, dbias, None, None, None, None


class ApexFormula(nn.modules.batchnorm._BatchNorm):
    """In training alone."""

    def forward(self, input: Any) -> Any:  # noqa: A002  as its base class calls it
        running = self.running_mean, self.running_var
        return _ApexFormula.apply(input, self.weight, self.bias, *running, self.momentum, self.eps)


def _apex(model: nn.Module) -> nn.Module:
    kind: Any = ApexFormula
    for each in model.modules():
        if type(each) is nn.BatchNorm2d:
            each.__class__ = kind
    return model


PEERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "local": lambda model: model,
    "torch": nn.SyncBatchNorm.convert_sync_batchnorm,
    "apex": _apex,
    "gradkern": partial(SyncBatchNorm.convert_sync_batchnorm, symmetric_memory=False),
    SYMMETRIC: partial(SyncBatchNorm.convert_sync_batchnorm, symmetric_memory=True),
}
"""By name, what makes a model's batch norms synchronise. PyTorch's and Apex's need GPUs."""
