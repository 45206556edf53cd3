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

from gradkern.torch.compile_backend.backend import register as _register
from gradkern.torch.functional.convolutions import batch_norm as batch_norm
from gradkern.torch.functional.convolutions import conv1d as conv1d
from gradkern.torch.functional.convolutions import conv2d as conv2d
from gradkern.torch.functional.convolutions import conv3d as conv3d
from gradkern.torch.functional.functions import invertible_layer_norm as invertible_layer_norm
from gradkern.torch.functional.functions import layer_norm as layer_norm
from gradkern.torch.functional.functions import linear_gelu as linear_gelu
from gradkern.torch.functional.functions import rms_norm as rms_norm
from gradkern.torch.functional.group_norms import group_norm as group_norm
from gradkern.torch.functional.group_norms import group_norm_act as group_norm_act
from gradkern.torch.functional.losses import cross_entropy as cross_entropy
from gradkern.torch.functional.losses import linear_cross_entropy as linear_cross_entropy
from gradkern.torch.functional.norm_activation import batch_norm_act as batch_norm_act
from gradkern.torch.functional.rotary import rotary_embedding as rotary_embedding
from gradkern.torch.graphs import Graphed as Graphed
from gradkern.torch.graphs import graphed as graphed
from gradkern.torch.modules.acceleration import Acceleration as Acceleration
from gradkern.torch.modules.acceleration import accelerate as accelerate
from gradkern.torch.modules.layers import BatchNorm1d as BatchNorm1d
from gradkern.torch.modules.layers import BatchNorm2d as BatchNorm2d
from gradkern.torch.modules.layers import BatchNorm3d as BatchNorm3d
from gradkern.torch.modules.layers import Conv1d as Conv1d
from gradkern.torch.modules.layers import Conv2d as Conv2d
from gradkern.torch.modules.layers import Conv3d as Conv3d
from gradkern.torch.modules.layers import CrossEntropyLoss as CrossEntropyLoss
from gradkern.torch.modules.layers import GroupNorm as GroupNorm
from gradkern.torch.modules.layers import InvertibleLayerNorm as InvertibleLayerNorm
from gradkern.torch.modules.layers import LayerNorm as LayerNorm
from gradkern.torch.modules.layers import LinearGELU as LinearGELU
from gradkern.torch.modules.layers import RMSNorm as RMSNorm
from gradkern.torch.overrides.report import Report as Report
from gradkern.torch.overrides.switch import disable as disable
from gradkern.torch.overrides.switch import enable as enable
from gradkern.torch.overrides.switch import enabled as enabled
from gradkern.torch.overrides.switch import follow_environment as _follow_environment
from gradkern.torch.overrides.switch import forget as forget
from gradkern.torch.overrides.switch import is_enabled as is_enabled
from gradkern.torch.overrides.switch import report as report
from gradkern.torch.overrides.switch import tune as tune
from gradkern.torch.sync_batch_norm.module import SyncBatchNorm as SyncBatchNorm

# pyright: reportUnsupportedDunderAll=false
__all__ = sorted(
    name for name, each in globals().items() if name[0] != "_" and "torch." in getattr(each, "__module__", "")
)
"""What is imported above, by its own name: editors and type checkers see that it is public."""


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])


_follow_environment()
_register()
