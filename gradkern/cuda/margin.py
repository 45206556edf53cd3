"""The SM margin: how many multiprocessors the kernels leave free for others', such as NCCL's.

A cooperative launch, as of most gradients with sums, begins only where all its blocks fit at the same time: where
another stream's kernel holds one multiprocessor of those it is planned for, it waits until that kernel ends. NCCL's
hold theirs for as long as they exchange gradients with other processes: most of a backward pass.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from gradkern.errors import GradkernError

VARIABLE = "GRADKERN_SM_MARGIN"
_NCCL_BLOCKS = 24
"""Of NCCL's collectives, each on a multiprocessor of its own, by default and at most: for A100 and H100 joined by
NVLink, and so H200, with H100's links, its log says "24 coll channels", and 16 or none of multicast (NVLS).
"""
_MOST = 1 / 4  # of a device's multiprocessors, by default: smaller ones have fewer links, or none


def sm_margin(processors: int) -> int:
    """Of so many multiprocessors: the variable's number, or else what NCCL takes where PyTorch's processes use it."""
    margin = asked()
    if margin is None:
        return min(_of_nccl(), int(_MOST * processors))
    if margin >= processors:
        raise GradkernError(f"{VARIABLE} is {margin}, but the device has {processors} multiprocessors in all")
    return margin


def asked() -> int | None:
    """The variable's number; None where it is not set."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise GradkernError(f"{VARIABLE} is {text!r}; it takes a number of multiprocessors, such as 16")
    return int(text)


def _of_nccl() -> int:
    """How many multiprocessors NCCL may hold: none where PyTorch has no group of several processes that use it."""
    distributed: Any = sys.modules.get("torch.distributed")  # without it there is no such group
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0
    if distributed.get_world_size() < 2 or "nccl" not in distributed.get_backend_config():
        return 0
    most = os.environ.get("NCCL_MAX_CTAS", "")
    return min(_NCCL_BLOCKS, int(most)) if most.isascii() and most.isdigit() else _NCCL_BLOCKS
