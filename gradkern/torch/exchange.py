"""Small messages between the processes of a group: everybody's numbers, or their sum.

They are functional collectives, which torch.compile knows. Where GPUs of one machine can read each other's memory, one
kernel that does so is another way (torch.distributed's symmetric memory): it needs no thread of NCCL's and a tenth of
the host's time. Numbers of different processes are never added up there, but put side by side, each in a row that is
zero in every other process: so all get the same bits, in whichever order that kernel reads.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]

__all__ = ["added", "gathered"]

Tensor = torch.Tensor
_MOST_BYTES = 1 << 20
"""Of all processes together. Every GPU reads them all, so that a ring is faster in the end."""


def gathered(message: Tensor, size: int, group: str, symmetric: bool) -> Tensor:
    """The messages of all processes, (n,) each, as (size, n)."""
    memory = _memory(message, size, group) if symmetric else None
    if memory is not None:
        return _read(memory, message, size, group)
    every = torch.ops._c10d_functional.all_gather_into_tensor(message, size, group)
    return torch.ops._c10d_functional.wait_tensor(every).view(size, -1)


def added(share: Tensor, size: int, group: str, symmetric: bool) -> Tensor:
    """The sum of all processes' shares."""
    memory = _memory(share, size, group) if symmetric else None
    if memory is not None:
        return _read(memory, share.reshape(-1), size, group).sum(0).view(share.shape)
    return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(share, "sum", group))


# --- symmetric memory -------------------------------------------------------------------------------------------------

_memories: WeakKeyDictionary[Any, dict[tuple[int, torch.device], Tensor]] = WeakKeyDictionary()
"""By process group: what the others read, by the numbers of a message and the device."""


def _memory(message: Tensor, size: int, group: str) -> Tensor | None:
    """This process's part of the symmetric memory for such messages; None where they go by collectives.

    The first message of a size waits for the other processes to make theirs.
    """
    if torch.compiler.is_compiling() or not message.is_cuda or message.dtype != torch.float32:
        return None
    numbers = -(-size * message.numel() // 4) * 4  # the kernel wants whole units of 16 bytes
    if numbers * message.itemsize > _MOST_BYTES:
        return None
    known, key = _memories.setdefault(_resolved(group), {}), (message.numel(), message.device)
    if key not in known and not torch.cuda.is_current_stream_capturing():
        known[key] = _made(numbers, message.device, group)
    return known.get(key)


def _made(numbers: int, device: torch.device, group: str) -> Tensor:
    try:
        from torch.distributed import _symmetric_memory  # pyright: ignore[reportMissingImports]

        memory = _symmetric_memory.empty(numbers, dtype=torch.float32, device=device).zero_()
        _symmetric_memory.rendezvous(memory, _resolved(group))
    except (ImportError, AttributeError, RuntimeError) as error:
        raise RuntimeError(
            f"SyncBatchNorm: symmetric_memory=True, but the GPUs of process group {group!r} cannot read each other's"
            f" memory: {error}"
        ) from error
    torch.cuda.synchronize(device)  # zeros before anybody reads them
    dist.barrier(_resolved(group))
    return memory


def _read(memory: Tensor, message: Tensor, size: int, group: str) -> Tensor:
    """Everybody's messages: this process's in its row, whose copies elsewhere are zeros, and then the sum of all."""
    numbers, rank = message.numel(), _resolved(group).rank()
    memory[rank * numbers : (rank + 1) * numbers].copy_(message)
    every = torch.ops.symm_mem.one_shot_all_reduce(memory, "sum", group)  # begins and ends when all are there
    return every[: size * numbers].view(size, numbers)


def _resolved(group: str) -> Any:
    found: Any = dist.distributed_c10d._resolve_process_group  # pyright: ignore[reportPrivateImportUsage]
    return found(group)
