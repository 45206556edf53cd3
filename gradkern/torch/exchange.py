"""Small messages between the processes of a group: everybody's numbers, or their sum.

In eager they are collectives of the process group, on the stream that is current where its backend can; elsewhere
functional ones, which torch.compile knows, at more of the host's time. Where GPUs of one machine can read each other's
memory, one kernel that does so is another way (torch.distributed's symmetric memory): it needs no thread of NCCL's and
a tenth of the host's time. Numbers of different processes are never added up there, but put side by side, each in a row
that is zero in every other process: so all get the same bits, in whichever order that kernel reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]

from gradkern.torch.direct import is_eager

__all__ = ["added", "gathered"]

Tensor = torch.Tensor
Parts = tuple[Tensor, ...]
_MOST_BYTES = 1 << 20
"""Of all processes together. Every GPU reads them all, so that a ring is faster in the end."""


def gathered(parts: Parts, size: int, group: str, symmetric: bool) -> Tensor:
    """The messages of all processes, each of n numbers, as (size, n). A message is some arrays, one behind another."""
    memory = _memory(parts, size, group) if symmetric else None
    if memory is not None:
        return memory.exchanged(parts, group)
    message = parts[0] if len(parts) == 1 else torch.cat(parts)
    if is_eager():
        every = message.new_empty(size * message.numel())
        _finish(_group(group)._allgather_base(every, message, _options("AllgatherOptions")))
    else:
        every = torch.ops._c10d_functional.all_gather_into_tensor(message, size, group)
        every = torch.ops._c10d_functional.wait_tensor(every)
    return every.view(size, -1)


def added(parts: Parts, size: int, group: str, symmetric: bool) -> Tensor:
    """The sum of the messages of all processes, (n,)."""
    memory = _memory(parts, size, group) if symmetric else None
    if memory is not None:
        return memory.exchanged(parts, group).sum(0)
    message = torch.cat(parts)
    if is_eager():
        _finish(_group(group).allreduce([message], _options("AllreduceOptions")))
        return message
    return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(message, "sum", group))


def _group(name: str) -> Any:
    return dist.distributed_c10d._resolve_process_group(name)  # pyright: ignore[reportArgumentType, reportPrivateImportUsage]


@cache
def _options(kind: str) -> Any:
    """Of a collective that runs in the order of the current stream."""
    made = getattr(import_module("torch._C._distributed_c10d"), kind)()
    made.asyncOp = False
    return made


def _finish(work: Any) -> None:
    if work is not None:
        work.wait()


# --- symmetric memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the others read of this process: a row for each process's message, all but its own zeros."""

    rows: Tensor
    own: Tensor
    shape: tuple[int, int]

    def exchanged(self, parts: Parts, group: str) -> Tensor:
        """Everybody's messages: the sum of what everybody has."""
        torch.cat(parts, out=self.own)
        every = torch.ops.symm_mem.one_shot_all_reduce(self.rows, "sum", group)  # begins and ends when all are there
        return every.as_strided(self.shape, (self.shape[1], 1))


_memories: WeakKeyDictionary[Any, dict[tuple[int, torch.device], _Memory]] = WeakKeyDictionary()
"""By process group; the numbers of a message and the device."""


def _memory(parts: Parts, size: int, group: str) -> _Memory | None:
    """The symmetric memory for such messages; None where they go by collectives.

    The first message of a size waits for the other processes to make theirs.
    """
    first = parts[0]
    if torch.compiler.is_compiling() or not first.is_cuda or first.dtype != torch.float32:
        return None
    numbers = sum([each.numel() for each in parts])
    if size * numbers * first.itemsize > _MOST_BYTES:
        return None
    resolved = _group(group)
    known, key = _memories.setdefault(resolved, {}), (numbers, first.device)
    if key not in known and not torch.cuda.is_current_stream_capturing():
        known[key] = _made((size, numbers), first.device, resolved)
    return known.get(key)


def _made(shape: tuple[int, int], device: torch.device, group: Any) -> _Memory:
    size, numbers = shape
    try:
        from torch.distributed import _symmetric_memory  # pyright: ignore[reportMissingImports]

        whole = -(-size * numbers // 4) * 4  # the kernel wants whole units of 16 bytes
        rows = _symmetric_memory.empty(whole, dtype=torch.float32, device=device).zero_()
        _symmetric_memory.rendezvous(rows, group)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise RuntimeError(
            f"SyncBatchNorm: symmetric_memory=True, but the GPUs of process group {group.group_name!r} cannot read each"
            f" other's memory: {error}"
        ) from error
    torch.cuda.synchronize(device)  # zeros before anybody reads them
    dist.barrier(group)
    return _Memory(rows, rows[group.rank() * numbers :][:numbers], shape)
