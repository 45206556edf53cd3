"""torch.ops.gradkern.held: copies of tensors that PyTorch's partitioner never computes again in a backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.operators.definition import define
from gradkern.torch.operators import new_like

__all__ = ["HELD", "copies_like"]

Tensor = torch.Tensor


def copies_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Where the copies of these tensors are written."""
    return [new_like(each) for each in tensors]


class _Copies:
    """What a call asks for: one launch of PyTorch's."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)

    def answer(self) -> list[Tensor]:
        made = copies_like(self._tensors)
        torch._foreach_copy_(made, self._tensors)  # pyright: ignore[reportPrivateImportUsage]
        return made


HELD = define("held(Tensor[] tensors) -> Tensor[]", _Copies, copies_like)
