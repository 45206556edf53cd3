"""Modules with those functions inside, and level 3, `accelerate`, which puts them into a model in place."""

from gradkern.torch.modules.layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    InvertibleLayerNorm,
    LayerNorm,
    LinearGELU,
    RMSNorm,
)

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "InvertibleLayerNorm",
    "LayerNorm",
    "LinearGELU",
    "RMSNorm",
]
