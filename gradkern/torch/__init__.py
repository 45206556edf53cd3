"""gradkern for PyTorch: one line, and models train with gradkern's gradients.

>>> import gradkern.torch
>>> gradkern.torch.enable()
>>> gradkern.torch.tune(lambda: step(batch))
>>> print(gradkern.torch.report())

Three levels: `enable`, for every model as it is; functions and modules, where that cannot reach; `accelerate`, which
puts those into a model. Importing it changes nothing, unless the environment variable GRADKERN_TORCH is 1, which
enables with the defaults.
"""

from __future__ import annotations

from gradkern.torch.acceleration import Acceleration, accelerate
from gradkern.torch.functions import invertible_layer_norm, layer_norm, linear_gelu, rms_norm
from gradkern.torch.modules import InvertibleLayerNorm, LayerNorm, LinearGELU, RMSNorm
from gradkern.torch.report import Report
from gradkern.torch.switch import disable, enable, enabled, follow_environment, forget, is_enabled, report, tune

__all__ = [
    "Acceleration",
    "InvertibleLayerNorm",
    "LayerNorm",
    "LinearGELU",
    "RMSNorm",
    "Report",
    "accelerate",
    "disable",
    "enable",
    "enabled",
    "forget",
    "invertible_layer_norm",
    "is_enabled",
    "layer_norm",
    "linear_gelu",
    "report",
    "rms_norm",
    "tune",
]

follow_environment()
