"""gradkern for PyTorch: one line, and models train with gradkern's gradients.

>>> import gradkern.torch
>>> gradkern.torch.enable()
>>> gradkern.torch.tune(lambda: step(batch), repeats=5)
>>> print(gradkern.torch.report())

Three levels: `enable`, for every model as it is; functions and modules, where that cannot reach; `accelerate`, to put
those into a model. Importing this module changes nothing, unless the environment variable GRADKERN_TORCH is 1: then it
calls `enable()`.

Under torch.compile, backend="gradkern" computes in one pass what stands around norms: gradkern.torch.compile_backend.
Other backends: with "aot_eager" all that `enable` took over is called; Inductor calls convolution_backward and nothing
else, as it decomposes norms and GELU before and fuses them with their neighbours. Of the functions and modules the
forward passes are traced and fused; the backward passes of norms and linear_gelu are calls of torch.ops.gradkern. Each
such call is a barrier to fusion: measure before preferring it to what Inductor makes.
"""

from __future__ import annotations

from gradkern.torch.compile_backend.backend import register
from gradkern.torch.functional.convolutions import batch_norm, conv1d, conv2d, conv3d
from gradkern.torch.functional.functions import invertible_layer_norm, layer_norm, linear_gelu, rms_norm
from gradkern.torch.functional.group_norms import group_norm, group_norm_act
from gradkern.torch.functional.losses import cross_entropy, linear_cross_entropy
from gradkern.torch.functional.norm_activation import batch_norm_act
from gradkern.torch.functional.rotary import rotary_embedding
from gradkern.torch.graphs import Graphed, graphed
from gradkern.torch.modules.acceleration import Acceleration, accelerate
from gradkern.torch.modules.layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    CrossEntropyLoss,
    GroupNorm,
    InvertibleLayerNorm,
    LayerNorm,
    LinearGELU,
    RMSNorm,
)
from gradkern.torch.overrides.report import Report
from gradkern.torch.overrides.switch import (
    disable,
    enable,
    enabled,
    follow_environment,
    forget,
    is_enabled,
    report,
    tune,
)
from gradkern.torch.sync_batch_norm.module import SyncBatchNorm

__all__ = [
    "Acceleration",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "CrossEntropyLoss",
    "Graphed",
    "GroupNorm",
    "InvertibleLayerNorm",
    "LayerNorm",
    "LinearGELU",
    "RMSNorm",
    "Report",
    "SyncBatchNorm",
    "accelerate",
    "batch_norm",
    "batch_norm_act",
    "conv1d",
    "conv2d",
    "conv3d",
    "cross_entropy",
    "disable",
    "enable",
    "enabled",
    "forget",
    "graphed",
    "group_norm",
    "group_norm_act",
    "invertible_layer_norm",
    "is_enabled",
    "layer_norm",
    "linear_cross_entropy",
    "linear_gelu",
    "report",
    "rms_norm",
    "rotary_embedding",
    "tune",
]


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])


follow_environment()
register()
