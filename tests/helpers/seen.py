"""A dispatch mode that notes which operators PyTorch is asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Seen"]


class Seen(TorchDispatchMode):
    """operators: those that were called within, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[torch._ops.OpOverload] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        self.operators.append(operator)
        return operator(*args, **(named or {}))
