"""Small messages between the processes of a group: everybody's numbers, or their sum.

In eager they are collectives of the process group, on the stream that is current where its backend can; elsewhere
functional ones: torch.compile knows them, but they cost the host more. Where GPUs of one machine can read each other's
memory, one kernel that does so is another way (torch.distributed's symmetric memory): it needs no thread of NCCL's and
a tenth of the host's time. Where everybody's numbers are wanted, they are put side by side there, each process's in a
row that is zero in every other process, and the rows added up: so all get the same bits, in whichever order that kernel
reads.
"""

from __future__ import annotations

import platform
import weakref
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]

from gradkern.arrays.kind import dtype_of
from gradkern.arrays.view import device_arrays
from gradkern.call import Tensor as Described
from gradkern.strides import c_strides
from gradkern.torch.direct import is_eager
from gradkern.torch.operators import type_name

Tensor = torch.Tensor
_MOST_BYTES = 1 << 20
"""Of all processes together. Every GPU reads them all, so that a ring is faster in the end."""


def gathered(message: Tensor, size: int, group: str, symmetric: bool) -> Tensor:
    """The messages of all processes, each of n numbers, as (size, n)."""
    if symmetric:
        memory = _memory("rows", message, size, group)
        if memory is not None:
            return memory.exchanged(message).as_strided((size, message.numel()), (message.numel(), 1))
    if is_eager():
        every = message.new_empty(size * message.numel())
        _finish(group_of(group)._allgather_base(every, message, _options("AllgatherOptions")))
    else:
        every = torch.ops._c10d_functional.all_gather_into_tensor(message, size, group)
        every = torch.ops._c10d_functional.wait_tensor(every)
    return every.view(size, -1)


def added(message: Tensor, size: int, group: str, symmetric: bool) -> Tensor:
    """The sum of the messages of all processes, (n,). The message may be overwritten. By symmetric memory each process
    adds up in an order of its own: of three or more their sums may differ in the last bit, each the same in every run.
    """
    if symmetric:
        memory = _memory("sum", message, size, group)
        if memory is not None:
            return memory.exchanged(message)[: message.numel()]
    if is_eager():
        _finish(group_of(group).allreduce([message], _options("AllreduceOptions")))
        return message
    return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(message, "sum", group))


def group_of(name: str) -> Any:
    """The process group of this name."""
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


# --- messages that kernels write at an address ------------------------------------------------------------------------


def exchange(kind: str, like: Tensor, size: int, group: str, symmetric: bool) -> _ByCollective | _BySymmetricMemory:
    """Messages of one size on one GPU, like this one. What does not change of their arrays is prepared.

    kind           "rows" or "sum"
    place()        the tensor for the next message, and its address: a multiple of a number's bytes, not always of 16,
                   even where the plan that writes it assumes that. So kernels write messages number by number
    send(message)  the result and its address: rows with the numbers of all processes, or their sum
    """
    memory = _memory(kind, like, size, group) if symmetric else None
    return _ByCollective(kind, like, size, group_of(group)) if memory is None else _BySymmetricMemory(memory)


class _ByCollective:
    def __init__(self, kind: str, like: Tensor, size: int, group: Any) -> None:
        arrays = device_arrays().torch_kind(like.get_device())
        dtype = dtype_of(type_name(like.dtype))
        shapes = (like.numel(),), (size * like.numel(),)
        mine, every = (Described(dtype, each, c_strides(each, dtype.itemsize), 16) for each in shapes)
        self._mine, self._every = arrays.maker(mine), arrays.maker(every) if kind == "rows" else None
        self._options = _options("AllgatherOptions" if kind == "rows" else "AllreduceOptions")
        self._backend = _backend_of(group, like.device)

    def place(self) -> tuple[Tensor, int]:
        return self._mine(None)

    def send(self, message: Tensor) -> tuple[Tensor, int]:
        if self._every is None:
            _finish(self._backend.allreduce([message], self._options))
            return message, message.data_ptr()
        every, address = self._every(None)
        _finish(self._backend._allgather_base(every, message, self._options))
        return every, address


def _backend_of(group: Any, device: torch.device) -> Any:
    """The backend of a group's collectives on that device. The group itself would call it through PyTorch's dispatcher.

    A group of another class may do something else with them, so that class is called.
    """
    return group._get_backend(device) if type(group) is dist.ProcessGroup else weakref.proxy(group)


class _BySymmetricMemory:
    def __init__(self, memory: _Memory) -> None:
        self._memory, self._place = memory, (memory.own, memory.own.data_ptr())

    def place(self) -> tuple[Tensor, int]:
        self._memory.claim()
        return self._place

    def send(self, message: Tensor) -> tuple[Tensor, int]:
        found = self._memory.sum()
        return found, found.data_ptr()


# --- symmetric memory -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Memory:
    """What the others read of this process: its message; or a row for each process's, all but its own zeros."""

    whole: Tensor
    own: Tensor
    group: str
    stream: int | None

    def claim(self) -> None:
        """Wait for the exchanges of another stream: they may still use this memory."""
        stream = _current_stream(self.whole)
        if stream != self.stream and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(self.whole.device)
        self.stream = stream

    def exchanged(self, message: Tensor) -> Tensor:
        self.claim()
        self.own.copy_(message)
        return self.sum()

    def sum(self) -> Tensor:
        """Of what everybody has."""
        add: Any = torch.ops.symm_mem.one_shot_all_reduce.default
        return add(self.whole, "sum", self.group)  # begins when all are there, and ends when all have read


_by_nvlink: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def reads_by_nvlink(group: Any, device: torch.device) -> bool:
    """Whether each GPU of a process group reads the memory of every other by NVLink: one machine, a GPU a process, all
    of them visible to all. The first call of a group exchanges this between its processes, so that they agree.
    """
    if device.type != "cuda":
        return False
    if group not in _by_nvlink:
        if torch.cuda.is_current_stream_capturing():
            return False
        mine = _machine(), str(torch.cuda.get_device_properties(device).uuid)
        linked = _linked(device, mine, _of_all(mine, group))
        _by_nvlink[group] = all(_of_all(linked, group))
    return _by_nvlink[group]


def _of_all(mine: Any, group: Any) -> list[Any]:
    found: list[Any] = [None] * group.size()
    dist.all_gather_object(found, mine, group)
    return found


def _machine() -> tuple[str, str]:
    """Its name and, as names of containers repeat, the id of this boot of its kernel."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return platform.node(), boot.read_text() if boot.exists() else ""


def _linked(device: torch.device, mine: tuple[Any, str], places: list[tuple[Any, str]]) -> bool:
    """Whether this GPU has NVLink to all others of these places, each a machine and a GPU's UUID."""
    visible = {str(torch.cuda.get_device_properties(n).uuid): n for n in range(torch.cuda.device_count())}
    if len(set(places)) < len(places) or any(machine != mine[0] or uuid not in visible for machine, uuid in places):
        return False
    try:
        library: Any = import_module("torch._C._distributed_c10d")
        kind: Any = import_module("torch._C._autograd").DeviceType.CUDA
        links = library._detect_dma_connectivity(kind, "nvlink").matrix[device.index]
    except (ImportError, AttributeError, RuntimeError, IndexError):  # a build or a machine without it
        return False
    return all(links[visible[uuid]] > 0 for place, uuid in places if (place, uuid) != mine)


_memories: WeakKeyDictionary[Any, dict[tuple[str, int, torch.device], _Memory | None]] = WeakKeyDictionary()
"""By process group; the kind of exchange, the numbers of a message and the device."""
_rendezvous = 0
"""How many memories this process has set up with others."""


def _memory(kind: str, message: Tensor, size: int, group: str) -> _Memory | None:
    """The symmetric memory for such messages; None where they go by collectives.

    The first message of a size waits for the other processes to make theirs.
    """
    if torch.compiler.is_compiling() or not message.is_cuda or message.dtype != torch.float32:
        return None
    numbers = message.numel()
    if size * numbers * message.itemsize > _MOST_BYTES:
        return None
    resolved = group_of(group)
    known, key = _memories.setdefault(resolved, {}), (kind, numbers, message.device)
    if key not in known and not torch.cuda.is_current_stream_capturing():
        known[key] = _set_up(size if kind == "rows" else 1, numbers, message.device, resolved)
    return known.get(key)


def _set_up(rows: int, numbers: int, device: torch.device, group: Any) -> _Memory | None:
    """None where some of the processes have set up more than others, as members of another group: PyTorch's rendezvous
    numbers its keys by process, not by group, and would wait for a key that nobody sets.
    """
    global _rendezvous
    if len(set(_of_all(_rendezvous, group))) > 1:
        return None
    _rendezvous += 1
    try:
        from torch.distributed import _symmetric_memory  # pyright: ignore[reportMissingImports]

        units = -(-rows * numbers // 4) * 4  # the kernel wants whole units of 16 bytes
        whole = _symmetric_memory.empty(units, dtype=torch.float32, device=device).zero_()
        _symmetric_memory.rendezvous(whole, group)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise RuntimeError(
            f"SyncBatchNorm: the GPUs of process group {group.group_name!r} cannot read each other's memory: {error};"
            " symmetric_memory=False sends the messages by collectives"
        ) from error
    torch.cuda.synchronize(device)  # zeros before anybody reads them
    dist.barrier(group)
    first = group.rank() * numbers if rows > 1 else 0
    return _Memory(whole, whole[first : first + numbers], group.group_name, _current_stream(whole))


def _current_stream(tensor: Tensor) -> int | None:
    return device_arrays().torch_kind(tensor.get_device()).stream()
