"""gradkern for PyTorch: one line, and models train with gradkern's gradients.

>>> import gradkern.torch
>>> gradkern.torch.enable()
>>> gradkern.torch.tune(lambda: step(batch))
>>> print(gradkern.torch.report())

Importing it changes nothing, unless the environment variable GRADKERN_TORCH is 1, which enables with the defaults.
"""

from __future__ import annotations

from gradkern.torch.report import Report
from gradkern.torch.switch import disable, enable, enabled, follow_environment, forget, is_enabled, report, tune

__all__ = ["Report", "disable", "enable", "enabled", "forget", "is_enabled", "report", "tune"]

follow_environment()
