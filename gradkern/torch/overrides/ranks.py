"""What processes of torch.distributed exchange so that all run the same kernels. A single process is the first."""

from __future__ import annotations

from typing import Any, TypeVar

import torch  # pyright: ignore[reportMissingImports]

_T = TypeVar("_T")


def _several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def is_first() -> bool:
    return not _several() or torch.distributed.get_rank() == 0


def of_first(mine: _T) -> _T:
    """The first rank's, for all; every rank has to call it."""
    if not _several():
        return mine
    held: list[Any] = [mine]
    torch.distributed.broadcast_object_list(held, src=0)
    return held[0]


def of_all(mine: _T) -> list[_T]:
    """Every rank's, in their order; every rank has to call it."""
    if not _several():
        return [mine]
    held: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(held, mine)
    return held
