"""Batch norm over the batch of all processes of a group: the module, its prepared steps, and the messages they send."""

from gradkern.torch.sync_batch_norm.module import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
