"""What torch.compile is told: that it need not look into gradkern, which works on memory and not on its graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

__all__ = ["opaque", "tell"]

_untold: list[CodeType] = []
"""Of what torch.compile is to be told about once PyTorch is there."""


def opaque(*functions: Callable[..., Any]) -> None:
    """Let compiled code call these functions as they are: they and what they call are neither traced nor compiled.

    torch.compiler.disable does the same by a wrapper, which every call would pay for, and by importing the compiler.
    """
    for function in functions:
        marked: Any = function
        marked._torchdynamo_disable = True  # read where a function that is compiled calls this one
        marked._torchdynamo_disable_msg = "gradkern computes on memory"
        _untold.append(marked.__code__)
    tell()


def tell() -> None:
    """Let Dynamo skip the frames of opaque functions, and those below them, if PyTorch is loaded by now."""
    if not _untold:
        return
    core: Any = getattr(sys.modules.get("torch"), "_C", None)
    frames = getattr(getattr(core, "_dynamo", None), "eval_frame", None)
    if frames is None or not hasattr(frames, "_FrameExecStrategy"):  # before PyTorch 2.7: it looks, and gives up
        return
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    while _untold:
        frames.set_code_exec_strategy(_untold.pop(), skip)
