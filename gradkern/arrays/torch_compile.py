"""Keep torch.compile from tracing into gradkern: it works on memory, not on a graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

_unmarked: list[CodeType] = []
"""Functions to mark for torch.compile once PyTorch is loaded."""


def opaque(*functions: Callable[..., Any]) -> None:
    """Let compiled code call these functions as they are: they and what they call are neither traced nor compiled.

    torch.compiler.disable does the same, but wraps the function at a cost for every call, and imports the compiler.
    """
    for function in functions:
        marked: Any = function
        marked._torchdynamo_disable = True  # read where a function that is compiled calls this one
        marked._torchdynamo_disable_msg = "gradkern computes on memory"
        _unmarked.append(marked.__code__)
    mark_opaque()


def mark_opaque() -> None:
    """Let Dynamo skip the frames of opaque functions, and those below them, if PyTorch is loaded by now."""
    if not _unmarked:
        return
    core: Any = getattr(sys.modules.get("torch"), "_C", None)
    frames = getattr(getattr(core, "_dynamo", None), "eval_frame", None)
    if frames is None or not hasattr(frames, "_FrameExecStrategy"):  # before PyTorch 2.7: it looks, and gives up
        return
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    while _unmarked:
        frames.set_code_exec_strategy(_unmarked.pop(), skip)
