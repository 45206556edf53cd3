"""When calls are done."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]


def synchronize() -> None:
    """Wait for what the GPU still does, if this process uses one."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
